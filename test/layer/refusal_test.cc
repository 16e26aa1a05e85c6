// What a model file may get wrong in one layer, and what the user is told.
#include "layer/make.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

std::string RefusalWith(const std::string& keys, const std::vector<TensorSpec>& inputs) {
  return ErrorOf([&] { MakeWith(keys, inputs); });
}
std::string Refusal(const std::string& keys, const Shape& input) {
  return RefusalWith(keys, {TensorSpec{input}});
}
std::string ConvRefusal(const std::string& keys) {
  return Refusal(R"("type": "conv2d", "out_channels": 8, "kernel": 3, )" + keys, {4, 9, 9});
}
std::string PoolRefusal(const std::string& keys) {
  return Refusal(R"("type": "max_pool2d", )" + keys, {4, 9, 9});
}

TEST_CASE("An unknown type is answered with the known ones and a suggestion") {
  CHECK(Refusal(R"("type": "conv2")", {1, 8, 8}) ==
        "m.json: /type: expected one of add, avg_pool2d, batch_norm, concat, conv2d, dropout, "
        "flatten, "
        "global_avg_pool2d, linear, lrn, max_pool2d, relu, sigmoid, softmax_cross_entropy, tanh, "
        "timed, found "
        "\"conv2\"; did you mean \"conv2d\"?");
  CHECK_THAT(Refusal(R"("type": "attention")", {4}), ContainsSubstring("found \"attention\""));
  CHECK_THAT(Refusal(R"("type": 3)", {4}), ContainsSubstring("/type: expected a string, found 3"));
  CHECK_THAT(Refusal(R"("kernel": 3)", {4}),
             ContainsSubstring("expected a key \"type\", found none"));
}

TEST_CASE("A misspelt key is refused with a suggestion") {
  CHECK(ConvRefusal(R"("paddin": 1)") ==
        "m.json: /paddin: unknown key \"paddin\"; did you mean \"padding\"?");
  CHECK(Refusal(R"("type": "relu", "kernel": 1)", {4}) ==
        "m.json: /kernel: unknown key \"kernel\"");
  CHECK_THAT(PoolRefusal(R"("kernel": 2, "count_include_pad": true)"),
             ContainsSubstring("/count_include_pad: unknown key"));
  const char* const types[] = {"linear",
                               "max_pool2d",
                               "avg_pool2d",
                               "global_avg_pool2d",
                               "flatten",
                               "relu",
                               "tanh",
                               "sigmoid",
                               "dropout",
                               "batch_norm",
                               "lrn",
                               "add",
                               "concat",
                               "conv2d",
                               "softmax_cross_entropy"};
  for (const std::string type : types) {
    CAPTURE(type);
    CHECK_THAT(Refusal("\"type\": \"" + type + "\", \"zzz\": 1", {4, 4, 4}),
               ContainsSubstring("/zzz: unknown key \"zzz\""));
  }
}

TEST_CASE("A missing key is refused by name") {
  CHECK(Refusal(R"("type": "conv2d", "kernel": 3)", {1, 8, 8}) ==
        "m.json: /: expected a key \"out_channels\", found none");
  CHECK_THAT(Refusal(R"("type": "conv2d", "out_channels": 3)", {1, 8, 8}),
             ContainsSubstring("expected a key \"kernel\""));
  CHECK_THAT(Refusal(R"("type": "linear")", {8}),
             ContainsSubstring("expected a key \"out_features\""));
  CHECK_THAT(Refusal(R"("type": "avg_pool2d")", {1, 8, 8}),
             ContainsSubstring("expected a key \"kernel\""));
}

TEST_CASE("Counts are integers from their least to 2^24") {
  const std::string from_1 = "expected an integer from 1 to 16777216, found ";
  const std::string from_0 = "expected an integer from 0 to 16777216, found ";
  for (const char* key : {"out_features"}) {
    for (const char* value :
         {"0", "-1", "2.5", "1e3", "\"3\"", "null", "true", "16777217", "99999999999999999999"}) {
      CAPTURE(key, value);
      CHECK_THAT(Refusal(std::string("\"type\": \"linear\", \"") + key + "\": " + value, {8}),
                 ContainsSubstring(std::string("m.json: /") + key + ": " + from_1));
    }
  }
  CHECK_THAT(ConvRefusal(R"("stride": 0)"), ContainsSubstring("/stride: " + from_1 + "0"));
  CHECK_THAT(ConvRefusal(R"("stride": [1, 0])"), ContainsSubstring("/stride/1: " + from_1 + "0"));
  CHECK_THAT(ConvRefusal(R"("stride": [2.5, 1])"),
             ContainsSubstring("/stride/0: " + from_1 + "2.5"));
  CHECK_THAT(ConvRefusal(R"("dilation": 0)"), ContainsSubstring("/dilation: " + from_1 + "0"));
  CHECK_THAT(ConvRefusal(R"("groups": 0)"), ContainsSubstring("/groups: " + from_1 + "0"));
  CHECK_THAT(ConvRefusal(R"("padding": -1)"), ContainsSubstring("/padding: " + from_0 + "-1"));
  CHECK_THAT(PoolRefusal(R"("kernel": 0)"), ContainsSubstring("/kernel: " + from_1 + "0"));
  CHECK_THAT(PoolRefusal(R"("kernel": 2, "stride": 0)"),
             ContainsSubstring("/stride: " + from_1 + "0"));
}

TEST_CASE("Pairs are one integer or two, flags are true or false") {
  CHECK(ConvRefusal(R"("stride": [1, 2, 3])") ==
        "m.json: /stride: expected an integer or [h, w], found an array of 3");
  CHECK_THAT(ConvRefusal(R"("padding": "same")"),
             ContainsSubstring("/padding: expected an integer or [h, w], found \"same\""));
  CHECK_THAT(ConvRefusal(R"("padding": null)"),
             ContainsSubstring("/padding: expected an integer or [h, w]"));
  CHECK(ConvRefusal(R"("bias": 1)") == "m.json: /bias: expected true or false, found 1");
  CHECK_THAT(PoolRefusal(R"("kernel": 2, "ceil": "yes")"),
             ContainsSubstring("/ceil: expected true or false"));
}

TEST_CASE("Groups divide the channels on both sides") {
  CHECK(ConvRefusal(R"("groups": 3)") ==
        "m.json: /groups: expected a divisor of 4 input and 8 output channels, found 3");
  CHECK_THAT(ConvRefusal(R"("groups": 8)"), ContainsSubstring("/groups: expected a divisor"));
}

TEST_CASE("A window larger than the padded image is refused") {
  CHECK(
      Refusal(R"("type": "conv2d", "out_channels": 8, "kernel": 5, "inputs": ["x"])", {4, 4, 9}) ==
      "m.json: /inputs/0: expected an image as large as the kernel as input of conv2d \"l\", found "
      "f32 "
      "[4, 4, 9]");
  CHECK_THAT(ConvRefusal(R"("dilation": 5)"), ContainsSubstring("an image as large as the kernel"));
  CHECK_THAT(PoolRefusal(R"("kernel": 10)"), ContainsSubstring("an image as large as the kernel"));
  CHECK_THAT(PoolRefusal(R"("kernel": 16777216)"),
             ContainsSubstring("an image as large as the kernel"));
}

TEST_CASE("Pooling pads at most half the kernel, as PyTorch") {
  CHECK(PoolRefusal(R"("kernel": 3, "padding": 2)") ==
        "m.json: /padding: expected at most half the kernel, 1, found 2");
  CHECK_THAT(PoolRefusal(R"("kernel": [4, 3], "padding": [2, 2])"),
             ContainsSubstring("/padding: expected"));
  CHECK(PoolRefusal(R"("kernel": [4, 3], "padding": [2, 1])") == "(no error)");
}

TEST_CASE("Tensors and parameters of absurd size are refused, without overflow") {
  CHECK_THAT(
      Refusal(R"("type": "conv2d", "out_channels": 16777216, "kernel": 1)", {1, 4096, 4096}),
      ContainsSubstring("expected an output of conv2d \"l\" with at most 68719476736 elements"));
  CHECK_THAT(Refusal(R"("type": "conv2d", "out_channels": 1, "kernel": 1, "padding": 16777216)",
                     {1, 1, 1}),
             ContainsSubstring("expected an output of conv2d"));
  CHECK_THAT(
      Refusal(R"("type": "linear", "out_features": 16777216)", {16777216}),
      ContainsSubstring("expected a weight of linear \"l\" with at most 68719476736 elements"));
  CHECK_THAT(Refusal(R"("type": "flatten")", {4096, 4096, 2}),
             ContainsSubstring("expected an output of flatten"));
  const TensorSpec half{{1 << 23, 1}};
  CHECK_THAT(RefusalWith(R"("type": "concat")", {half, half, half}),
             ContainsSubstring("expected an output of concat"));
}

TEST_CASE("Numbers stay in their range") {
  const Shape image = {4, 4, 4};
  CHECK_THAT(Refusal(R"("type": "dropout", "p": 1)", {4}),
             ContainsSubstring("/p: expected a number from 0 to below 1, found 1"));
  CHECK_THAT(Refusal(R"("type": "dropout", "p": 0.99999999999)", {4}),
             ContainsSubstring("/p: expected"));
  CHECK_THAT(Refusal(R"("type": "dropout", "p": -0.1)", {4}),
             ContainsSubstring("/p: expected a number"));
  CHECK_THAT(Refusal(R"("type": "dropout", "p": "0.5")", {4}),
             ContainsSubstring("/p: expected a number"));
  CHECK_THAT(Refusal(R"("type": "batch_norm", "eps": 0)", {4}),
             ContainsSubstring("/eps: expected a number"));
  CHECK_THAT(Refusal(R"("type": "batch_norm", "momentum": 1.5)", {4}),
             ContainsSubstring("/momentum: expected"));
  CHECK(Refusal(R"("type": "lrn", "size": 4)", image) ==
        "m.json: /size: expected an odd number, found 4");
  CHECK_THAT(Refusal(R"("type": "lrn", "size": 0)", image),
             ContainsSubstring("/size: expected an integer"));
  CHECK_THAT(Refusal(R"("type": "lrn", "k": 0)", image),
             ContainsSubstring("/k: expected a number"));
  CHECK_THAT(Refusal(R"("type": "lrn", "alpha": -1)", image),
             ContainsSubstring("/alpha: expected a number"));
  CHECK_THAT(
      RefusalWith(R"("type": "softmax_cross_entropy", "weight": -1)", {{{4}}, {{}, DType::kI32}}),
      ContainsSubstring("/weight: expected a number"));
}

TEST_CASE("The number of inputs is checked") {
  const TensorSpec x{{4, 4, 4}};
  CHECK(RefusalWith(R"("type": "relu", "inputs": ["a", "b"])", {x, x}) ==
        "m.json: /inputs: expected 1 input for relu \"l\", found 2");
  CHECK_THAT(RefusalWith(R"("type": "add")", {x}),
             ContainsSubstring("expected two or more inputs for add \"l\", found 1"));
  CHECK_THAT(RefusalWith(R"("type": "concat")", {x}),
             ContainsSubstring("two or more inputs for concat"));
  CHECK_THAT(RefusalWith(R"("type": "softmax_cross_entropy")", {x}),
             ContainsSubstring("expected 2 inputs"));
}

TEST_CASE("Shapes and types that do not fit are refused with the input's place") {
  const TensorSpec image{{4, 4, 4}};
  const TensorSpec flat{{10}};
  const TensorSpec label{{}, DType::kI32};
  for (const std::string type :
       {"\"conv2d\", \"out_channels\": 1, \"kernel\": 1", "\"max_pool2d\", \"kernel\": 1",
        "\"global_avg_pool2d\"", "\"lrn\""}) {
    CAPTURE(type);
    CHECK_THAT(RefusalWith("\"inputs\": [\"x\"], \"type\": " + type, {flat}),
               ContainsSubstring("m.json: /inputs/0: expected f32 [C, H, W] as input of "));
  }
  CHECK(RefusalWith(R"("type": "add", "inputs": ["a", "b"])", {image, flat}) ==
        "m.json: /inputs/1: expected f32 [4, 4, 4], like the first, as input of add \"l\", found "
        "f32 [10]");
  CHECK_THAT(RefusalWith(R"("type": "concat", "inputs": ["a", "b"])", {image, {{4, 4, 5}}}),
             ContainsSubstring("/inputs/1: expected f32 [4, 4, 4] up to the channels"));
  CHECK_THAT(RefusalWith(R"("type": "concat", "inputs": ["a", "b"])", {TensorSpec{}, TensorSpec{}}),
             ContainsSubstring("/inputs/0: expected f32 [C, …]"));
  CHECK_THAT(Refusal(R"("type": "linear", "out_features": 2)", Shape{}),
             ContainsSubstring("f32 […, features]"));
  CHECK_THAT(Refusal(R"("type": "batch_norm")", {4, 4}),
             ContainsSubstring("expected f32 [C] or [C, H, W]"));
  CHECK_THAT(RefusalWith(R"("type": "relu")", {label}),
             ContainsSubstring("expected f32 as input of relu \"l\", found i32 []"));
  const std::string loss = R"("type": "softmax_cross_entropy", "inputs": ["x", "y"])";
  CHECK_THAT(RefusalWith(loss, {image, label}),
             ContainsSubstring("/inputs/0: expected logits f32 [classes]"));
  CHECK_THAT(RefusalWith(loss, {flat, flat}),
             ContainsSubstring("/inputs/1: expected a label i32 []"));
  CHECK_THAT(RefusalWith(loss, {flat, {{1}, DType::kI32}}),
             ContainsSubstring("/inputs/1: expected a label i32 []"));
  CHECK_THAT(RefusalWith(loss, {label, flat}),
             ContainsSubstring("/inputs/0: expected f32 as input"));
}

TEST_CASE("Initial values name a parameter and one rule") {
  const auto refusal = [](const std::string& init) {
    return Refusal(R"("type": "linear", "out_features": 2, "init": )" + init, {4});
  };
  CHECK(refusal(R"({"weigth": {"constant": 1}})") ==
        "m.json: /init/weigth: unknown key \"weigth\"; did you mean \"weight\"?");
  CHECK_THAT(refusal(R"({"weight": {"gauss": 1}})"),
             ContainsSubstring("/init/weight/gauss: unknown key"));
  CHECK_THAT(refusal(R"({"weight": {}})"), ContainsSubstring("/init/weight: expected one of"));
  CHECK_THAT(refusal(R"({"weight": {"uniform": 1, "normal": 1}})"),
             ContainsSubstring("found 2 keys"));
  CHECK_THAT(refusal(R"({"weight": {"uniform": -1}})"),
             ContainsSubstring("/init/weight/uniform: expected a number"));
  CHECK_THAT(refusal(R"({"weight": 0.1})"),
             ContainsSubstring("/init/weight: expected an object, found 0.1"));
  CHECK_THAT(refusal("[]"), ContainsSubstring("/init: expected an object"));
  CHECK_THAT(Refusal(R"("type": "relu", "init": {})", {4}),
             ContainsSubstring("/init: unknown key"));
  CHECK_THAT(
      Refusal(
          R"("type": "linear", "out_features": 2, "bias": false, "init": {"bias": {"constant": 0}})",
          {4}),
      ContainsSubstring("/init/bias: unknown key"));
}

}  // namespace
}  // namespace pd
