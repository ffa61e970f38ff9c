// Golden cases: tests/rules/<group>/<name>/*.case, each an input and the verdict expected of it.
// A failure prints the new text; PLUMB_ACCEPT=1 writes it.
//
//   # what the case shows
//   [set]                    optional: settings, RULE.OPTION=VALUE
//   [router]                 a reference router on random scores (support/synthetic_routing.h)
//   policy = score-capacity
//   [mixture]                or: a layer's summaries over many steps (support/mixture_run.h)
//   [routing-pair]           or: training's and inference's routing (support/routing_pair.h)
//   [accumulation]           or: running sums of gradients (support/accumulation_run.h)
//   [update]                 or: optimizer updates (support/update_run.h)
//   [tensor]                 or: tensors of a model (support/tensor_run.h)
//   [reduction]              or: collectives (support/simulated_reduction.h)
//   [matmul]                 or: matrix products (support/matmul_run.h)
//   [logprobs]               or: sampled tokens, both sides (support/simulated_rollout.h)
//   [batch]                  or: batches in protobuf text format, separated by lines of ---
//   [expect]
//   ...
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/catalogue.h"
#include "rules/engine/engine.h"
#include "tests/rules/support/accumulation_run.h"
#include "tests/rules/support/matmul_run.h"
#include "tests/rules/support/mixture_run.h"
#include "tests/rules/support/routing_pair.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/simulated_rollout.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/tensor_run.h"
#include "tests/rules/support/update_run.h"

namespace plumbline::rules {
namespace {

namespace fs = std::filesystem;
using testing::PoolUnit;
using testing::Recorded;
using testing::RecordedProbs;
using testing::RoutingSpec;
using testing::SyntheticRouting;

struct Case {
  fs::path path;
  std::string input_kind;  // the section's name: "router", "mixture", ..., "batch"
  std::string head;        // everything up to and with the [expect] line
  std::string input;
  std::string expect;
  std::vector<std::string> settings;
};

Case Parse(const fs::path& path) {
  Case c{.path = path};
  std::ifstream in(path);
  std::string line, section;
  while (std::getline(in, line)) {
    if (section == "[expect]") {
      c.expect += line + "\n";
      continue;
    }
    c.head += line + "\n";
    const bool input = line == "[router]" || line == "[mixture]" || line == "[routing-pair]" ||
                       line == "[update]" || line == "[tensor]" || line == "[accumulation]" ||
                       line == "[reduction]" || line == "[matmul]" || line == "[logprobs]" ||
                       line == "[batch]";
    if (input || line == "[expect]" || line == "[set]") {
      section = line;
      if (input) c.input_kind = line.substr(1, line.size() - 2);
    } else if (section == "[set]") {
      c.settings.push_back(line);
    } else if (!section.empty()) {
      c.input += line + "\n";
    }
  }
  return c;
}

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
                                             {"chunk", PoolUnit::kChunk}});
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

std::vector<v1::Batch> RouterInput(const std::string& text) {
  RoutingSpec spec;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    const size_t equals = line.find(" = ");
    if (equals != std::string::npos) Set(spec, line.substr(0, equals), line.substr(equals + 3));
  }
  return {SyntheticRouting(spec).Batch()};
}

// "key = value" lines into a simulation's settings.
template <typename Spec>
Spec SpecInput(const std::string& text) {
  Spec spec;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    const size_t equals = line.find(" = ");
    if (equals != std::string::npos)
      testing::Set(spec, line.substr(0, equals), line.substr(equals + 3));
  }
  return spec;
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

std::vector<v1::Batch> Input(const Case& c) {
  if (c.input_kind == "router") return RouterInput(c.input);
  if (c.input_kind == "mixture")
    return {testing::MixtureRun(SpecInput<testing::MixtureRunSpec>(c.input))};
  if (c.input_kind == "routing-pair")
    return testing::RoutingPair(SpecInput<testing::RoutingPairSpec>(c.input));
  if (c.input_kind == "accumulation")
    return {testing::AccumulationRun(SpecInput<testing::AccumulationSpec>(c.input))};
  if (c.input_kind == "update")
    return {testing::UpdateRun(SpecInput<testing::UpdateRunSpec>(c.input))};
  if (c.input_kind == "tensor")
    return {testing::TensorRun(SpecInput<testing::TensorRunSpec>(c.input))};
  if (c.input_kind == "reduction")
    return {testing::ReductionRun(SpecInput<testing::ReductionSpec>(c.input))};
  if (c.input_kind == "matmul")
    return {testing::MatmulRun(SpecInput<testing::MatmulRunSpec>(c.input))};
  if (c.input_kind == "logprobs")
    return {testing::RolloutRun(SpecInput<testing::RolloutSpec>(c.input))};
  return BatchInput(c.input);
}

std::string ValueText(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return absl::StrFormat("%.6g", value.number_value());
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kStructValue: {
      std::map<std::string, std::string> sorted;
      for (const auto& [key, inner] : value.struct_value().fields()) sorted[key] = ValueText(inner);
      std::string text;
      for (const auto& [key, inner] : sorted)
        absl::StrAppend(&text, text.empty() ? "" : " ", key, "=", inner);
      return "{" + text + "}";
    }
    case google::protobuf::Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    default:
      return "null";
  }
}

void RenderStruct(const char* name, const google::protobuf::Struct& s, std::string& out) {
  std::map<std::string, std::string> sorted;
  for (const auto& [key, value] : s.fields()) sorted[key] = ValueText(value);
  for (const auto& [key, text] : sorted)
    absl::StrAppend(&out, "  ", name, " ", key, ": ", text, "\n");
}

std::string Render(const v1::Verdict& verdict) {
  static const char* const kKinds[] = {"?", "pass", "finding", "inconclusive"};
  static const char* const kLevels[] = {"?", "note", "warning", "error"};
  static const char* const kStrengths[] = {"?", "heuristic", "statistical", "bounded", "proved"};
  std::string out =
      absl::StrCat(kKinds[verdict.kind()], " ", verdict.rule(), " at ", verdict.site().layer(), "/",
                   verdict.site().op(), " steps ", verdict.site().step_first(), "-",
                   verdict.site().step_last(), "\n");
  if (!verdict.reason().empty()) absl::StrAppend(&out, "  reason: ", verdict.reason(), "\n");
  if (verdict.kind() == v1::Verdict::KIND_FINDING) {
    const v1::Finding& f = verdict.finding();
    absl::StrAppend(&out, "  ", kLevels[f.level()], ", ", kStrengths[f.strength()], ": ", f.title(),
                    "\n");
    absl::StrAppend(&out, "  explanation: ", f.explanation(), "\n");
    absl::StrAppend(&out, "  cause: ", f.cause().id(),
                    absl::StrFormat(" (%.6g)", f.cause().confidence()), "\n");
    absl::StrAppend(
        &out, absl::StrFormat("  measured: %s %.6g %s, threshold %.6g, %s\n", f.measured().name(),
                              f.measured().value(), f.measured().unit(), f.threshold().value(),
                              f.threshold().source()));
    RenderStruct("witness", f.witness(), out);
    absl::StrAppend(&out, "  fix: ", f.fix(), "\n");
  }
  RenderStruct("details", verdict.details(), out);
  for (const std::string& assumption : verdict.assumptions())
    absl::StrAppend(&out, "  assuming: ", assumption, "\n");
  return out;
}

std::string JudgeCase(const std::string& rule, const Case& c) {
  std::string out;
  auto engine = Engine::Create({.settings = c.settings}, [&](const v1::Verdict& verdict) {
    if (verdict.rule() == rule) out += Render(verdict);
  });
  if (!engine.ok()) return std::string(engine.status().message()) + "\n";
  for (v1::Batch& batch : Input(c)) {
    const absl::Status status = (*engine)->Add(std::move(batch));
    if (!status.ok()) absl::StrAppend(&out, "refused: ", std::string(status.message()), "\n");
  }
  (*engine)->Finish();
  return out.empty() ? "silent\n" : out;
}

TEST(Golden, EveryCaseGivesItsVerdict) {
  const fs::path root = fs::path(PLUMBLINE_SOURCE_DIR) / "tests/rules";
  int cases = 0;
  for (const CatalogueEntry& entry : Catalogue()) {
    if (entry.make == nullptr || !fs::exists(root / entry.info->id)) continue;
    std::vector<fs::path> paths;
    for (const auto& file : fs::directory_iterator(root / entry.info->id)) {
      if (file.path().extension() == ".case") paths.push_back(file.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      const Case c = Parse(path);
      const std::string actual = JudgeCase(entry.info->id, c);
      ++cases;
      if (actual == c.expect) continue;
      if (std::getenv("PLUMB_ACCEPT") != nullptr) {
        std::ofstream(path) << c.head << actual;
        continue;
      }
      ADD_FAILURE() << fs::relative(path, root).string() << " gives (PLUMB_ACCEPT=1 to accept):\n"
                    << actual;
    }
  }
  EXPECT_GT(cases, 10);
}

}  // namespace
}  // namespace plumbline::rules
