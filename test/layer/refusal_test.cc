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

/// Every type, as the list that an unknown one is answered with.
std::string Types() {
  const std::string answer = Refusal(R"("type": "?")", {1});
  const std::string before = "m.json: /type: expected one of ";
  REQUIRE(answer.rfind(before, 0) == 0);
  const std::string types = answer.substr(before.size(), answer.find(", found") - before.size());
  for (const char* type :
       {"attention", "conv2d", "embedding", "softmax_cross_entropy", "transpose"})
    CHECK_THAT(types, ContainsSubstring(type));
  return types;
}

TEST_CASE("An unknown type is answered with the known ones and a suggestion") {
  CHECK(Refusal(R"("type": "conv2")", {1, 8, 8}) ==
        "m.json: /type: expected one of " + Types() +
            ", found \"conv2\"; did you mean \"conv2d\"?");
  CHECK_THAT(Refusal(R"("type": "hologram")", {4}), ContainsSubstring(", found \"hologram\""));
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
  const char* const types[] = {"linear",     "max_pool2d", "avg_pool2d", "global_avg_pool2d",
                               "flatten",    "relu",       "tanh",       "sigmoid",
                               "dropout",    "batch_norm", "lrn",        "add",
                               "concat",     "conv2d",     "embedding",  "position_embedding",
                               "layer_norm", "gelu",       "attention",  "slice",
                               "pad",        "transpose",  "reshape",    "softmax_cross_entropy"};
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
  CHECK_THAT(
      RefusalWith(R"("type": "concat", "inputs": ["a", "b"])", {image, {{4, 4, 5}}}),
      ContainsSubstring("/inputs/1: expected f32 [4, 4, 4], like the first but for dimension 0, "
                        "as input of concat \"l\", found f32 [4, 4, 5]"));
  CHECK_THAT(
      RefusalWith(R"("type": "concat", "axis": 2, "inputs": ["a", "b"])", {image, {{4, 3, 4}}}),
      ContainsSubstring("/inputs/1: expected f32 [4, 4, 4], like the first but for dimension 2,"));
  CHECK_THAT(RefusalWith(R"("type": "concat", "axis": 2, "inputs": ["a", "b"])", {image, {{4, 4}}}),
             ContainsSubstring("/inputs/1: expected f32 [4, 4, 4]"));
  CHECK_THAT(RefusalWith(R"("type": "concat", "inputs": ["a", "b"])", {TensorSpec{}, TensorSpec{}}),
             ContainsSubstring("/inputs/0: expected f32 [C, …]"));
  CHECK_THAT(Refusal(R"("type": "linear", "out_features": 2)", Shape{}),
             ContainsSubstring("f32 […, features]"));
  CHECK_THAT(Refusal(R"("type": "batch_norm")", {4, 4}),
             ContainsSubstring("expected f32 [C] or [C, H, W]"));
  CHECK_THAT(RefusalWith(R"("type": "relu")", {label}),
             ContainsSubstring("expected f32 as input of relu \"l\", found i32 []"));
  const std::string loss = R"("type": "softmax_cross_entropy", "inputs": ["x", "y"])";
  CHECK_THAT(RefusalWith(loss, {TensorSpec{}, label}),
             ContainsSubstring("/inputs/0: expected logits"));
  CHECK_THAT(RefusalWith(loss, {image, label}),
             ContainsSubstring("/inputs/1: expected targets i32 [4, 4]"));
  CHECK_THAT(RefusalWith(loss, {flat, flat}),
             ContainsSubstring("/inputs/1: expected targets i32 []"));
  CHECK_THAT(RefusalWith(loss, {flat, {{1}, DType::kI32}}),
             ContainsSubstring("/inputs/1: expected targets i32 []"));
  CHECK_THAT(RefusalWith(loss, {label, flat}),
             ContainsSubstring("/inputs/0: expected f32 as input"));
}

TEST_CASE("Dimensions are counted from 0 in the sample") {
  const Shape image = {4, 5, 6};
  CHECK(Refusal(R"("type": "slice", "axis": 3, "end": 1)", image) ==
        "m.json: /axis: expected a dimension of the input f32 [4, 5, 6], counted from 0, found 3");
  CHECK_THAT(Refusal(R"("type": "slice", "axis": -1, "end": 1)", image),
             ContainsSubstring("/axis: expected an integer from 0"));
  CHECK_THAT(Refusal(R"("type": "slice", "end": 1)", Shape{}),
             ContainsSubstring("expected a dimension of the input f32 []"));
  CHECK_THAT(RefusalWith(R"("type": "concat", "axis": 1)", {{{4}}, {{4}}}),
             ContainsSubstring("/axis: expected a dimension of the input f32 [4], counted from 0, "
                               "found 1"));
  CHECK(Refusal(R"("type": "transpose", "axes": [0, 1])", image) ==
        "m.json: /axes: expected 3 integers, one a dimension of the input f32 [4, 5, 6], found 2");
  CHECK(Refusal(R"("type": "transpose", "axes": [0, 2, 2])", image) ==
        "m.json: /axes: expected each of 0 to 2 once, found [0, 2, 2]");
  CHECK_THAT(Refusal(R"("type": "transpose", "axes": [0, 1, 3])", image),
             ContainsSubstring("/axes: expected each of 0 to 2 once, found [0, 1, 3]"));
  CHECK_THAT(Refusal(R"("type": "transpose", "axes": [1, "0", 2])", image),
             ContainsSubstring("/axes/1: expected an integer"));
  CHECK_THAT(Refusal(R"("type": "transpose")", image),
             ContainsSubstring("expected a key \"axes\", found none"));
}

TEST_CASE("A slice lies inside its dimension and is not empty") {
  const Shape rows = {4, 5};
  CHECK(Refusal(R"("type": "slice", "begin": 1, "end": 5)", rows) ==
        "m.json: /end: expected at most 4, dimension 0 of the input f32 [4, 5], found 5");
  CHECK(Refusal(R"("type": "slice", "begin": 3, "end": 3)", rows) ==
        "m.json: /begin: expected less than end, 3, found 3");
  CHECK_THAT(Refusal(R"("type": "slice", "begin": -1, "end": 3)", rows),
             ContainsSubstring("/begin: expected an integer from 0"));
  CHECK_THAT(Refusal(R"("type": "slice", "end": 0)", rows),
             ContainsSubstring("/end: expected an integer from 1"));
  CHECK_THAT(Refusal(R"("type": "slice")", rows), ContainsSubstring("expected a key \"end\""));
}

TEST_CASE("Padding is counted for each dimension") {
  const Shape rows = {4, 5};
  CHECK(Refusal(R"("type": "pad", "before": [1], "after": [0, 0])", rows) ==
        "m.json: /before: expected 2 integers, one a dimension of the input f32 [4, 5], found 1");
  CHECK_THAT(Refusal(R"("type": "pad", "before": [1, 0], "after": [0, -1])", rows),
             ContainsSubstring("/after/1: expected an integer from 0"));
  CHECK_THAT(Refusal(R"("type": "pad", "before": 1, "after": 1)", rows),
             ContainsSubstring("/before: expected an array"));
  CHECK_THAT(Refusal(R"("type": "pad", "before": [0, 0])", rows),
             ContainsSubstring("expected a key \"after\", found none"));
  CHECK_THAT(Refusal(R"("type": "pad", "before": [0, 16777216], "after": [0, 0])", rows),
             ContainsSubstring("expected an output of pad"));
}

TEST_CASE("A reshape keeps the number of elements") {
  CHECK(Refusal(R"("type": "reshape", "shape": [4, 4])", {4, 5}) ==
        "m.json: /shape: expected a shape of 20 elements, as the input f32 [4, 5] has, found "
        "[4, 4]");
  CHECK_THAT(RefusalWith(R"("type": "reshape", "shape": [])", {{{3}, DType::kI32}}),
             ContainsSubstring("a shape of 3 elements, as the input i32 [3] has, found []"));
  CHECK_THAT(Refusal(R"("type": "reshape", "shape": [-1, 5])", {4, 5}),
             ContainsSubstring("/shape/0: expected an integer from 1"));
  CHECK_THAT(Refusal(R"("type": "reshape")", {1}),
             ContainsSubstring("expected a key \"shape\", found none"));
  // The product of the extents is 2^72, which is 0 in 64 bits.
  CHECK_THAT(Refusal(R"("type": "reshape", "shape": [16777216, 16777216, 16777216])", {4}),
             ContainsSubstring("/shape: expected a shape of 4 elements"));
}

TEST_CASE("Sequences have the shapes and types that their layers read") {
  const TensorSpec rows{{4, 6}};
  CHECK(
      RefusalWith(
          R"("type": "embedding", "num_embeddings": 3, "embedding_dim": 2, "inputs": ["x"])",
          {rows}) ==
      "m.json: /inputs/0: expected indices i32 […] as input of embedding \"l\", found f32 [4, 6]");
  CHECK_THAT(RefusalWith(R"("type": "embedding", "num_embeddings": 0, "embedding_dim": 2)",
                         {{{4}, DType::kI32}}),
             ContainsSubstring("/num_embeddings: expected an integer from 1"));
  CHECK_THAT(RefusalWith(R"("type": "embedding", "num_embeddings": 16777216,
                             "embedding_dim": 16777216)",
                         {{{4}, DType::kI32}}),
             ContainsSubstring("expected a weight of embedding"));
  CHECK_THAT(Refusal(R"("type": "position_embedding", "inputs": ["x"])", {4}),
             ContainsSubstring("/inputs/0: expected f32 [T, D] as input of position_embedding"));
  CHECK_THAT(Refusal(R"("type": "layer_norm")", Shape{}), ContainsSubstring("expected f32 […, D]"));
  CHECK_THAT(Refusal(R"("type": "layer_norm", "eps": 0)", {4}),
             ContainsSubstring("/eps: expected a number"));
  CHECK(Refusal(R"("type": "gelu", "approximate": "erf")", {4}) ==
        "m.json: /approximate: expected \"none\" or \"tanh\", found \"erf\"");
  CHECK_THAT(Refusal(R"("type": "gelu", "approximate": true)", {4}),
             ContainsSubstring("/approximate: expected a string"));
  for (const Shape& shape : {Shape{6}, Shape{4, 7}, Shape{2, 4, 6}}) {
    CHECK_THAT(Refusal(R"("type": "attention", "heads": 1)", shape),
               ContainsSubstring("expected f32 [T, 3·D] as input of attention"));
  }
  CHECK(Refusal(R"("type": "attention", "heads": 4)", {4, 18}) ==
        "m.json: /heads: expected a divisor of 6, a third of the features, found 4");
  CHECK_THAT(Refusal(R"("type": "attention")", {4, 18}),
             ContainsSubstring("expected a key \"heads\""));
  CHECK_THAT(Refusal(R"("type": "attention", "heads": 1)", {1 << 20, 3}),
             ContainsSubstring("expected heads·T·T up to 68719476736"));
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
