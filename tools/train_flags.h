#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>

#include "train/trainer.h"

namespace pd {

/// The command line of pd-train.
struct TrainFlags {
  struct Flag {
    const char* name;
    const char* value;
    const char* help;
  };

  /// Each is a key of config/1 too, with _ for -.
  static constexpr Flag kFlags[] = {
      {"data", "DIR", "data set: a directory, or synthetic"},
      {"epochs", "N", "passes over the training samples (1)"},
      {"minibatches", "N", "minibatches of each epoch (all)"},
      {"eval-every", "N", "evaluate every N minibatches too, not only at epoch ends"},
      {"eval-minibatches", "N", "minibatches of each evaluation (all)"},
      {"target-accuracy", "X", "stop at this test accuracy; exit status 3 if it is not reached"},
      {"target-perplexity", "X", "the same at or below this test perplexity, of token models"},
      {"lr", "X", "learning rate (0.01)"},
      {"momentum", "X", "momentum of SGD (0.9)"},
      {"weight-decay", "X", "weight decay of SGD (0)"},
      {"schedule", "NAME", "schedule (the plan's; 1f1b)"},
      {"device", "NAME",
       "auto, ref, cpu, cuda, cuda:N or timed; auto takes a GPU where there is one (auto)"},
      {"threads", "N", "threads a worker (1)"},
      {"seed", "N", "seed of weights, order and dropout (1)"},
      {"metrics", "FILE", "JSON Lines of metrics (standard output)"},
      {"log-every", "N", "minibatches between train events (10)"},
      {"trace", "FILE", "Chrome trace of every action (chrome://tracing, Perfetto)"},
      {"checkpoint", "DIR", "write a checkpoint at each epoch's end"},
      {"progress", "WHEN", "progress line: auto, always or never (auto)"},
      {"stall-timeout", "S", "seconds that a worker waits for another before the run fails (300)"},
  };

  TrainArguments arguments;

  void Declare(CLI::App& app) {
    app.add_option("plan", arguments.plan, "plan/1 file, - for standard input")
        ->required()
        ->type_name("PLAN");
    app.add_option("--config", arguments.config, "config/1 file; flags win over it")
        ->type_name("FILE");
    for (const Flag& flag : kFlags) {
      app.add_option(std::string("--") + flag.name, values_[flag.name], flag.help)
          ->type_name(flag.value);
    }
    app.add_flag("--check", arguments.check,
                 "check the plan, print ranks, memory and minibatches in flight, and end");
    app.add_flag("--tf32", tf32_, "on a GPU: round products to TF32, which is faster");
    app.add_flag("--resume", resume_, "not available yet");
    app.add_option("--accumulate", accumulate_, "not available yet")->type_name("N");
  }

  /// After parsing: fills `arguments`; throws CLI::ValidationError.
  void Finish(const CLI::App& app) {
    if (resume_) throw CLI::ValidationError("--resume is not available yet");
    if (!accumulate_.empty()) throw CLI::ValidationError("--accumulate is not available yet");
    for (const Flag& flag : kFlags) {
      if (app.count(std::string("--") + flag.name) == 0) continue;
      std::string key = flag.name;
      std::replace(key.begin(), key.end(), '-', '_');
      arguments.flags.emplace_back(key, values_[flag.name]);
    }
    if (tf32_) arguments.flags.emplace_back("tf32", "true");
  }

 private:
  std::map<std::string, std::string> values_;
  bool tf32_ = false, resume_ = false;
  std::string accumulate_;
};

}  // namespace pd
