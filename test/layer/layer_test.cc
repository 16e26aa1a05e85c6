#include "layer/layer.h"

#include "layer/make.h"
#include "support/catch.h"

namespace pd {
namespace {

TEST_CASE("conv2d: shapes, parameters and work equal a hand count") {
  const auto conv = Make(R"("type": "conv2d", "out_channels": 50, "kernel": 5)", {20, 12, 12});
  CHECK(conv->name() == "l");
  CHECK(conv->type() == "conv2d");
  CHECK(conv->output() == TensorSpec{{50, 8, 8}});
  REQUIRE(conv->params().size() == 2);
  CHECK(conv->params()[0].name == "weight");
  CHECK(conv->params()[0].shape == Shape{50, 20, 5, 5});
  CHECK(conv->params()[1].name == "bias");
  CHECK(conv->params()[1].shape == Shape{50});
  CHECK(ParamElements(*conv) == 25'050);
  CHECK(conv->ForwardFlops() == 2.0 * 50 * 8 * 8 * 20 * 5 * 5);
  CHECK_FALSE(conv->is_loss());
  CHECK(conv->limit() == 0);
}

TEST_CASE("conv2d: pairs are [h, w], groups share out the channels, bias may be left out") {
  const auto conv = Make(R"("type": "conv2d", "out_channels": 6, "kernel": [3, 2], "stride": [2, 1],
      "padding": [1, 0], "dilation": [1, 3], "groups": 2, "bias": false)",
                         {4, 9, 10});
  // Rows (9 + 2 - 3)/2 + 1 = 5; columns 10 - 3·1 - 1 + 1 = 7.
  CHECK(conv->output() == TensorSpec{{6, 5, 7}});
  REQUIRE(conv->params().size() == 1);
  CHECK(conv->params()[0].shape == Shape{6, 2, 3, 2});
  CHECK(conv->ForwardFlops() == 2.0 * 6 * 5 * 7 * 2 * 3 * 2);
}

TEST_CASE("linear: works on the last dimension") {
  const auto flat = Make(R"("type": "linear", "out_features": 500)", {800});
  CHECK(flat->output() == TensorSpec{{500}});
  CHECK(ParamElements(*flat) == 400'500);
  CHECK(flat->ForwardFlops() == 2.0 * 800 * 500);
  const auto rows = Make(R"("type": "linear", "out_features": 3, "bias": false)", {7, 5});
  CHECK(rows->output() == TensorSpec{{7, 3}});
  REQUIRE(rows->params().size() == 1);
  CHECK(rows->params()[0].shape == Shape{3, 5});
  CHECK(rows->ForwardFlops() == 2.0 * 7 * 5 * 3);
}

TEST_CASE("Pooling: stride is the kernel unless given, ceil rounds up") {
  const Shape in = {3, 7, 7};
  CHECK(Make(R"("type": "max_pool2d", "kernel": 2)", in)->output().shape == Shape{3, 3, 3});
  CHECK(Make(R"("type": "max_pool2d", "kernel": 2, "ceil": true)", in)->output().shape ==
        Shape{3, 4, 4});
  CHECK(
      Make(R"("type": "avg_pool2d", "kernel": 3, "stride": 1, "padding": 1)", in)->output().shape ==
      in);
  CHECK(Make(R"("type": "avg_pool2d", "kernel": [7, 2], "count_include_pad": false)", in)
            ->output()
            .shape == Shape{3, 1, 3});
  CHECK(Make(R"("type": "global_avg_pool2d")", {64, 7, 5})->output().shape == Shape{64, 1, 1});
}

TEST_CASE("Elementwise layers keep the shape and have no parameters") {
  for (const char* keys : {R"("type": "relu")", R"("type": "tanh")", R"("type": "sigmoid")",
                           R"("type": "dropout")", R"("type": "dropout", "p": 0)",
                           R"("type": "gelu")", R"("type": "gelu", "approximate": "tanh")"}) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3}, Shape{2, 3, 4}}) {
      const auto layer = Make(keys, shape);
      CHECK(layer->output() == TensorSpec{shape});
      CHECK(layer->params().empty());
    }
  }
  CHECK(Make(R"("type": "lrn", "size": 9)", {4, 2, 2})->output().shape == Shape{4, 2, 2});
}

TEST_CASE("batch_norm: two parameters and two statistics a channel") {
  for (const Shape& shape : {Shape{6}, Shape{6, 4, 4}}) {
    const auto norm = Make(R"("type": "batch_norm")", shape);
    CHECK(norm->output().shape == shape);
    REQUIRE(norm->params().size() == 4);
    const char* const names[] = {"weight", "bias", "running_mean", "running_var"};
    const double initial[] = {1, 0, 0, 1};
    for (size_t i = 0; i < 4; ++i) {
      const ParamSpec& param = norm->params()[i];
      CHECK(param.name == names[i]);
      CHECK(param.shape == Shape{6});
      CHECK(param.trainable == (i < 2));
      CHECK(param.init.kind == Init::Kind::kConstant);
      CHECK(param.init.value == initial[i]);
    }
  }
}

TEST_CASE("flatten, add and concat") {
  CHECK(Make(R"("type": "flatten")", {2, 3, 4})->output() == TensorSpec{{24}});
  CHECK(MakeWith(R"("type": "flatten")", {{{2, 3}, DType::kI32}})->output() ==
        TensorSpec{{6}, DType::kI32});
  const TensorSpec a{{2, 5, 5}};
  const TensorSpec b{{3, 5, 5}};
  CHECK(MakeWith(R"("type": "add")", {a, a, a})->output() == a);
  CHECK(MakeWith(R"("type": "concat")", {a, b, a})->output() == TensorSpec{{7, 5, 5}});
  CHECK(MakeWith(R"("type": "concat")", {{{4}}, {{1}}})->output() == TensorSpec{{5}});
  CHECK(MakeWith(R"("type": "concat", "axis": 2)", {{{2, 5, 4}}, {{2, 5, 3}}})->output() ==
        TensorSpec{{2, 5, 7}});
}

TEST_CASE("embedding reads indices of any shape and limits them to its rows") {
  const std::string keys = R"("type": "embedding", "num_embeddings": 7, "embedding_dim": 3)";
  const auto words = MakeWith(keys, {{{5}, DType::kI32}});
  CHECK(words->output() == TensorSpec{{5, 3}});
  CHECK(words->limit() == 7);
  REQUIRE(words->params().size() == 1);
  CHECK(words->params()[0].name == "weight");
  CHECK(words->params()[0].shape == Shape{7, 3});
  CHECK(MakeWith(keys, {{{}, DType::kI32}})->output() == TensorSpec{{3}});
  CHECK(MakeWith(keys, {{{2, 4}, DType::kI32}})->output() == TensorSpec{{2, 4, 3}});
}

TEST_CASE("position_embedding and layer_norm: parameters of the sample's and of a row's shape") {
  const auto position = Make(R"("type": "position_embedding")", {5, 3});
  CHECK(position->output() == TensorSpec{{5, 3}});
  REQUIRE(position->params().size() == 1);
  CHECK(position->params()[0].shape == Shape{5, 3});
  for (const Shape& shape : {Shape{3}, Shape{5, 3}, Shape{2, 5, 3}}) {
    const auto norm = Make(R"("type": "layer_norm", "eps": 0.1)", shape);
    CHECK(norm->output().shape == shape);
    REQUIRE(norm->params().size() == 2);
    const double initial[] = {1, 0};
    for (size_t i = 0; i < 2; ++i) {
      CHECK(norm->params()[i].shape == Shape{3});
      CHECK(norm->params()[i].init.kind == Init::Kind::kConstant);
      CHECK(norm->params()[i].init.value == initial[i]);
    }
  }
}

TEST_CASE("attention: from query, key and value side by side to the values' width") {
  const auto attention = Make(R"("type": "attention", "heads": 4)", {5, 24});
  CHECK(attention->output() == TensorSpec{{5, 8}});
  CHECK(attention->params().empty());
  // Scores and weighted values: 5·5 of 8 features each.
  CHECK(attention->ForwardFlops() == 2.0 * 2 * 5 * 5 * 8);
  CHECK(Make(R"("type": "attention", "heads": 1, "causal": true)", {1, 3})->output().shape ==
        Shape{1, 1});
}

TEST_CASE("slice, pad, transpose and reshape: shapes equal a hand count") {
  const Shape in = {4, 5, 6};
  CHECK(Make(R"("type": "slice", "end": 1)", in)->output().shape == Shape{1, 5, 6});
  CHECK(Make(R"("type": "slice", "axis": 2, "begin": 2, "end": 6)", in)->output().shape ==
        Shape{4, 5, 4});
  CHECK(Make(R"("type": "pad", "before": [1, 0, 2], "after": [0, 3, 4])", in)->output().shape ==
        Shape{5, 8, 12});
  CHECK(Make(R"("type": "transpose", "axes": [2, 0, 1])", in)->output().shape == Shape{6, 4, 5});
  CHECK(Make(R"("type": "reshape", "shape": [12, 1, 10])", in)->output().shape == Shape{12, 1, 10});
  CHECK(Make(R"("type": "reshape", "shape": [])", {1, 1})->output().shape == Shape{});
  CHECK(MakeWith(R"("type": "reshape", "shape": [6])", {{{2, 3}, DType::kI32}})->output() ==
        TensorSpec{{6}, DType::kI32});
}

TEST_CASE("softmax_cross_entropy is a loss over as many classes as logits") {
  const std::vector<TensorSpec> inputs = {{{10}}, {{}, DType::kI32}};
  const auto loss = MakeWith(R"("type": "softmax_cross_entropy")", inputs);
  CHECK(loss->is_loss());
  CHECK(loss->output() == TensorSpec{{4}});
  CHECK(loss->limit() == 10);
  CHECK(MakeWith(R"("type": "softmax_cross_entropy")", {{{7, 10}}, {{7}, DType::kI32}})->limit() ==
        10);
  CHECK(loss->loss_weight() == 1);
  CHECK(MakeWith(R"("type": "softmax_cross_entropy", "weight": 0.3)", inputs)->loss_weight() ==
        0.3);
}

}  // namespace
}  // namespace pd
