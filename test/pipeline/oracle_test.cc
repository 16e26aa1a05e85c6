#include "pipeline/pipelined.h"
#include "support/catch.h"

namespace pd {
namespace {

void CheckEqual(const TrainingResult& got, const TrainingResult& wanted) {
  CHECK(Difference(got, wanted) == "");
}

TEST_CASE("pipelined training on threads equals the serial run of the same rule, bit for bit") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  for (const NamedCase& named : OracleCases(backend)) {
    DYNAMIC_SECTION(backend << " " << named.name) {
      CheckEqual(TrainOnThreads(named.c, data), TrainSerially(named.c, data));
    }
  }
}

TEST_CASE("the serial oracle learns, and different rules give different weights") {
  const RandomData data = OracleData();
  const auto cases = OracleCases("ref");
  const TrainingResult one = TrainSerially(cases[0].c, data);
  CHECK(one.at("loss").size() == 38);
  const TrainingResult two = TrainSerially(cases[1].c, data);
  CHECK(one.at("fc1.weight") != two.at("fc1.weight"));
  TrainingCase machines = cases[16].c;
  CHECK(machines.machine_ranks == 2);
  const TrainingResult inside_first = TrainSerially(machines, data);
  machines.machine_ranks = 1;
  CHECK(inside_first.at("fc1.weight") != TrainSerially(machines, data).at("fc1.weight"));
}

TEST_CASE("messages of any size and protocol train the same: every send waits for its receive") {
  const RandomData data = OracleData();
  const auto cases = OracleCases("ref");
  for (const size_t i : {size_t{3}, size_t{10}}) {
    CheckEqual(TrainOnThreads(cases[i].c, data, 0), TrainSerially(cases[i].c, data));
  }
}

TEST_CASE("fewer minibatches than stages end, and are trained") {
  const RandomData data = OracleData();
  for (NamedCase named : OracleCases("ref")) {
    for (const int64_t samples : {int64_t{1}, int64_t{4}, int64_t{6}, int64_t{12}, int64_t{44}}) {
      named.c.segments = {samples, samples, samples};
      INFO(named.name << " " << samples);
      CheckEqual(TrainOnThreads(named.c, data), TrainSerially(named.c, data));
    }
  }
}

TEST_CASE("training goes on after evaluations of 1, 7 and 50 samples as the serial run does") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  for (NamedCase named : OracleCases(backend)) {
    named.c.segments = {44, 43, 48, 20};
    named.c.evaluations = {1, 7, 50, 8};
    INFO(backend << " " << named.name);
    const TrainingResult wanted = TrainSerially(named.c, data);
    CHECK(wanted.at("evaluation").size() == 2 * (1 + 2 + 13 + 2));
    CheckEqual(TrainOnThreads(named.c, data), wanted);
  }
}

TEST_CASE("twice the same run gives the same bytes") {
  const RandomData data = OracleData();
  const auto cases = OracleCases(TrainingBackends().front());
  CheckEqual(TrainOnThreads(cases[10].c, data), TrainOnThreads(cases[10].c, data));
}

}  // namespace
}  // namespace pd
