#include "tests/rules/support/golden_case.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>

#include "analysis/processes/hang_verdict.h"
#include "tests/rules/attack/case.h"
#include "tests/rules/support/accumulation_run.h"
#include "tests/rules/support/applied_gradients.h"
#include "tests/rules/support/matmul_run.h"
#include "tests/rules/support/mixture_run.h"
#include "tests/rules/support/routing_pair.h"
#include "tests/rules/support/scalar_run.h"
#include "tests/rules/support/series_run.h"
#include "tests/rules/support/simulated_flight.h"
#include "tests/rules/support/simulated_job.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/simulated_rollout.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/tensor_run.h"
#include "tests/rules/support/update_run.h"

namespace plumbline::rules::testing {
namespace {

namespace fs = std::filesystem;

template <typename T>
T OneOf(const std::string& value, const std::map<std::string, T>& known) {
  const auto found = known.find(value);
  if (found == known.end()) throw std::runtime_error("unknown value " + value);
  return found->second;
}

void Set(RoutingSpec& spec, const std::string& key, const std::string& value) {
  const bool on = value == "on";
  const std::map<std::string, std::function<void()>> setters = {
      {"policy",
       [&] {
         if (!ParsePolicy(value, &spec.policy)) throw std::runtime_error("policy " + value);
       }},
      {"sequences", [&] { spec.sequences = std::stoi(value); }},
      {"length", [&] { spec.length = std::stoi(value); }},
      {"experts", [&] { spec.experts = std::stoi(value); }},
      {"top_k", [&] { spec.top_k = std::stoi(value); }},
      {"capacity_factor", [&] { spec.capacity_factor = std::stod(value); }},
      {"chunks", [&] { spec.chunks = std::stoi(value); }},
      {"quantum", [&] { spec.quantum = std::stod(value); }},
      {"repeat", [&] { spec.repeat = std::stoi(value); }},
      {"pad_map", [&] { spec.pad_map = on; }},
      {"record_bias", [&] { spec.record_bias = on; }},
      {"priority_sum", [&] { spec.router.priority_sum = on; }},
      {"softmax", [&] { spec.softmax = on; }},
      {"null_experts", [&] { spec.router.null_experts = std::stoi(value); }},
      {"first_ranks", [&] { spec.router.first_ranks = std::stoi(value); }},
      {"tie_rule",
       [&] {
         spec.router.tie_rule = OneOf<TieRule>(value, {{"last-first", TieRule::kLastFirst},
                                                       {"strided", TieRule::kStrided},
                                                       {"partitioned", TieRule::kPartitioned}});
       }},
      {"key",
       [&] {
         spec.router.key = spec.router.combine =
             OneOf<ScoreKey>(value, {{"logits", ScoreKey::kLogits},
                                     {"softmax", ScoreKey::kSoftmax},
                                     {"softmax-chosen", ScoreKey::kSoftmaxChosen},
                                     {"sigmoid-share", ScoreKey::kSigmoidShare}});
       }},
      {"probs",
       [&] {
         spec.probs = OneOf<RecordedProbs>(value, {{"none", RecordedProbs::kNone},
                                                   {"dense", RecordedProbs::kDense},
                                                   {"chosen", RecordedProbs::kChosen}});
       }},
      {"padding_share", [&] { spec.padding_share = std::stod(value); }},
      {"seed", [&] { spec.seed = std::stoull(value); }},
      {"record_pool_id", [&] { spec.record_pool_id = on; }},
      {"pool_metadata", [&] { spec.pool_metadata = on; }},
      {"declare_capacity", [&] { spec.declare_capacity = on; }},
      {"seq_major", [&] { spec.seq_major = on; }},
      {"shuffle_rows", [&] { spec.shuffle_rows = on; }},
      {"dtype",
       [&] {
         spec.dtype = OneOf<DType>(
             value, {{"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}});
       }},
      {"pool",
       [&] {
         spec.pool = OneOf<PoolUnit>(value, {{"microbatch", PoolUnit::kMicrobatch},
                                             {"sequence", PoolUnit::kSequence},
                                             {"chunk", PoolUnit::kChunk},
                                             {"pack", PoolUnit::kPack}});
       }},
      {"recorded",
       [&] {
         spec.recorded = OneOf<Recorded>(value, {{"mask", Recorded::kIndicesAndMask},
                                                 {"map", Recorded::kIndicesAndMap},
                                                 {"map-only", Recorded::kMapOnly}});
       }},
  };
  const auto found = setters.find(key);
  if (found == setters.end()) throw std::runtime_error("unknown key " + key);
  found->second();
}

// Parses "key = value" lines into the settings of a simulation.
template <typename Spec>
Spec SpecInput(const std::string& text) {
  Spec spec;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    const size_t equals = line.find(" = ");
    if (equals != std::string::npos) Set(spec, line.substr(0, equals), line.substr(equals + 3));
  }
  return spec;
}

std::vector<v1::Batch> RouterInput(const std::string& text) {
  return {SyntheticRouting(SpecInput<RoutingSpec>(text)).Batch()};
}

std::vector<v1::Batch> BatchInput(const std::string& text) {
  std::vector<v1::Batch> batches;
  std::istringstream in(text);
  std::string line, part;
  const auto flush = [&] {
    batches.emplace_back();
    if (!google::protobuf::TextFormat::ParseFromString(part, &batches.back()))
      throw std::runtime_error("bad batch");
    part.clear();
  };
  while (std::getline(in, line)) {
    if (line == "---") {
      flush();
    } else {
      part += line + "\n";
    }
  }
  flush();
  return batches;
}

v1::StepsStopped StoppedInput(const std::string& text) {
  v1::StepsStopped stopped;
  if (!google::protobuf::TextFormat::ParseFromString(text, &stopped))
    throw std::runtime_error("bad StepsStopped");
  return stopped;
}

v1::RanksHung HungInput(const std::string& text) {
  v1::RanksHung hung;
  if (!google::protobuf::TextFormat::ParseFromString(text, &hung))
    throw std::runtime_error("bad RanksHung");
  return hung;
}

// Returns a batch that makes the run known.
template <typename Event>
v1::Batch FirstWordOf(const Event& hung) {
  v1::Batch batch;
  v1::Source& source = *batch.add_sources();
  source.set_run(hung.run());
  source.set_role(hung.role());
  source.set_world_size(1);
  batch.add_progress()->set_newest_step(hung.step());
  return batch;
}

}  // namespace

GoldenCase ParseGoldenCase(const fs::path& path) {
  GoldenCase c{.path = path};
  std::ifstream in(path);
  std::string line, section;
  while (std::getline(in, line)) {
    if (section == "[expect]") {
      c.expect += line + "\n";
      continue;
    }
    c.head += line + "\n";
    const bool input = line == "[router]" || line == "[attack]" || line == "[mixture]" ||
                       line == "[routing-pair]" || line == "[update]" || line == "[tensor]" ||
                       line == "[accumulation]" || line == "[gradients]" || line == "[reduction]" ||
                       line == "[matmul]" || line == "[logprobs]" || line == "[hung]" ||
                       line == "[stopped]" || line == "[scalars]" || line == "[series]" ||
                       line == "[job]" || line == "[flight]" || line == "[batch]";
    if (input || line == "[expect]" || line == "[set]" || line == "[suppress]") {
      section = line;
      if (input) c.input_kind = line.substr(1, line.size() - 2);
    } else if (section == "[set]") {
      c.settings.push_back(line);
    } else if (section == "[suppress]") {
      c.suppressions += line + "\n";
    } else if (!section.empty()) {
      c.input += line + "\n";
    }
  }
  return c;
}

EngineConfig ConfigOf(const GoldenCase& c) {
  EngineConfig config;
  config.settings = c.settings;
  config.today = 20605;  // 2026-06-01
  auto list = ParseSuppressions(c.suppressions, "suppressions");
  if (!list.ok()) throw std::runtime_error(std::string(list.status().message()));
  config.suppressions = *std::move(list);
  return config;
}

std::vector<GoldenCase> GoldenCases(const fs::path& source, const std::string& rule) {
  std::vector<GoldenCase> cases;
  const fs::path folder = source / "tests/rules" / rule;
  if (!fs::exists(folder)) return cases;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() == ".case") cases.push_back(ParseGoldenCase(file.path()));
  }
  std::sort(cases.begin(), cases.end(),
            [](const GoldenCase& a, const GoldenCase& b) { return a.path < b.path; });
  return cases;
}

std::string Feed(const GoldenCase& c, Engine* engine) {
  std::string refused;
  for (v1::Batch& batch : InputOf(c)) {
    const absl::Status status = engine->Add(std::move(batch));
    if (!status.ok()) refused += "refused: " + std::string(status.message()) + "\n";
  }
  if (c.input_kind == "stopped") {
    const v1::StepsStopped stopped = StoppedInput(c.input);
    engine->Emit(stopped.run(), kStepsStoppedRule, StepsStoppedVerdict(stopped));
  }
  if (c.input_kind == "hung") {
    const v1::RanksHung hung = HungInput(c.input);
    engine->Emit(hung.run(), kHangRule, HangVerdict(hung));
  }
  return refused;
}

std::vector<v1::Batch> InputOf(const GoldenCase& c) {
  if (c.input_kind == "stopped") return {FirstWordOf(StoppedInput(c.input))};
  if (c.input_kind == "hung") return {FirstWordOf(HungInput(c.input))};
  if (c.input_kind == "router") return RouterInput(c.input);
  if (c.input_kind == "attack") return {attack::AttackRun(SpecInput<attack::AttackSpec>(c.input))};
  if (c.input_kind == "mixture") return {MixtureRun(SpecInput<MixtureRunSpec>(c.input))};
  if (c.input_kind == "routing-pair") return RoutingPair(SpecInput<RoutingPairSpec>(c.input));
  if (c.input_kind == "gradients") return {AppliedGradients(SpecInput<AppliedSpec>(c.input))};
  if (c.input_kind == "accumulation")
    return {AccumulationRun(SpecInput<AccumulationSpec>(c.input))};
  if (c.input_kind == "update") return {UpdateRun(SpecInput<UpdateRunSpec>(c.input))};
  if (c.input_kind == "tensor") return {TensorRun(SpecInput<TensorRunSpec>(c.input))};
  if (c.input_kind == "reduction") return {ReductionRun(SpecInput<ReductionSpec>(c.input))};
  if (c.input_kind == "matmul") return MatmulRun(SpecInput<MatmulRunSpec>(c.input));
  if (c.input_kind == "series") return SeriesRun(c.input);
  if (c.input_kind == "job") return {JobRun(SpecInput<JobSpec>(c.input))};
  if (c.input_kind == "flight") return {FlightRun(SpecInput<FlightSpec>(c.input))};
  if (c.input_kind == "logprobs") return {RolloutRun(SpecInput<RolloutSpec>(c.input))};
  if (c.input_kind == "scalars") return ScalarRun(SpecInput<ScalarRunSpec>(c.input));
  return BatchInput(c.input);
}

}  // namespace plumbline::rules::testing
