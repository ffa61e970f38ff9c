// The texts of a plan that all formats share.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/plan/plan_report.h"
#include "audit/plan/quantity.h"

namespace plumbline::audit {
namespace {

using plan::Sharding;

std::string PlanPercent(double share) {
  const double percent = 100 * share;
  return absl::StrFormat("%.*f %%", percent < 9.95 ? 1 : 0, percent);
}

std::string Count(double value) { return absl::StrFormat("%.0f", std::round(value)); }

std::string Standing(const plan::Plan& p) {
  if (p.critical_tokens == 0) return "one replica: nothing is reduced over the network";
  const bool above = p.tokens_per_gpu >= p.critical_tokens;
  return absl::StrCat(Count(p.tokens_per_gpu), " tokens per GPU and step, ",
                      above ? "above" : "below", " the crossover at ", Count(p.critical_tokens),
                      ": ",
                      above ? "computation can hide the network"
                            : absl::StrCat("at least ", PlanPercent(p.exposed_share),
                                           " of the step is a wait for it"));
}

std::string Floor(const plan::Plan& p) {
  const double sequences = plan::Sequences(p.input), replicas = plan::DataParallel(p.input);
  const double needed = replicas * p.input.layout.micro_sequences;
  std::string text = absl::StrCat(absl::StrFormat("%.4g", sequences), " sequences per step for ",
                                  Count(replicas), replicas == 1 ? " replica" : " replicas");
  if (p.micro_batches >= 1)
    return absl::StrCat(text, ": ", absl::StrFormat("%.3g", p.micro_batches),
                        " micro-batches each; the floor is ", Count(needed), " sequences (",
                        QuantityText(needed * static_cast<double>(p.input.model.sequence)),
                        " tokens)");
  return absl::StrCat(text, ", below the floor of ", Count(needed), ": ",
                      PlanPercent(1 - std::max(0.0, p.micro_batches)),
                      " of the replicas have no work");
}

std::string StageAdvice(const plan::Plan& p) {
  if (p.stages.size() < 2) return "";
  const auto best = std::min_element(
      p.stages.begin(), p.stages.end(),
      [](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; });
  const auto now = std::find_if(p.stages.begin(), p.stages.end(),
                                [&](const auto& s) { return s.stages == p.input.layout.stages; });
  const double here = now == p.stages.end() ? p.step_seconds : now->step_seconds;
  if (best->step_seconds >= 0.98 * here) return "No other number of stages is 2 % faster.";
  return absl::StrFormat("%s would take at least %s a step instead of %s.",
                         best->stages == 1 ? "No pipeline" : Count(best->stages) + " stages",
                         SecondsText(best->step_seconds), SecondsText(here));
}

PlanTable LeverTable(const plan::Plan& p) {
  PlanTable table{"What moves the crossover", {"with", "crossover", "then"}, {}, ""};
  for (const plan::Lever& lever : p.levers)
    table.rows.push_back({lever.what, Count(lever.critical_tokens),
                          lever.tokens_per_gpu >= lever.critical_tokens
                              ? Count(lever.tokens_per_gpu) + " tokens per GPU: above"
                              : Count(lever.tokens_per_gpu) + " tokens per GPU: below"});
  return table;
}

PlanTable StageTable(const plan::Plan& p) {
  PlanTable table{"Pipeline stages",
                  {"stages", "micro-batches", "bubble", "network", "step, at least"},
                  {},
                  StageAdvice(p)};
  for (const plan::StageCost& s : p.stages)
    table.rows.push_back({Count(s.stages), absl::StrFormat("%.3g", s.micro_batches),
                          PlanPercent(s.bubble), SecondsText(s.network_seconds),
                          SecondsText(s.step_seconds)});
  if (p.stages.empty())
    table.below = "Every number of stages leaves replicas without a micro-batch.";
  return table;
}

PlanTable StateTable(const plan::Plan& p) {
  PlanTable table{"Memory for state, per GPU",
                  {"sharding", "weights", "gradients", "optimizer", "all", "of the GPU"},
                  {},
                  ""};
  for (const plan::StateBytes& s : p.states)
    table.rows.push_back({plan::ShardingName(s.sharding), BytesText(s.weights),
                          BytesText(s.gradients), BytesText(s.optimizer), BytesText(s.total()),
                          PlanPercent(s.total() / p.input.cluster.memory)});
  return table;
}

PlanTable ActivationTable(const plan::Plan& p) {
  PlanTable table{"Memory for activations, per GPU", {"recomputed", "bytes", "of the GPU"}, {}, ""};
  if (!std::isfinite(p.activations.full)) {
    table.below = "Not estimated: expected --hidden (and --heads), or a config.json.";
    return table;
  }
  const auto row = [&](const char* what, double bytes) {
    table.rows.push_back({what, BytesText(bytes), PlanPercent(bytes / p.input.cluster.memory)});
  };
  if (p.input.model.heads > 0) row("nothing, attention scores are stored", p.activations.all);
  row("attention scores, or they are never stored", p.activations.selective);
  row("all but the layers' inputs", p.activations.full);
  return table;
}

std::string BottleneckText(const plan::BottleneckShare& bottleneck) {
  const std::string name = plan::BottleneckName(bottleneck.bottleneck);
  if (bottleneck.is_time)
    return bottleneck.share > 0
               ? absl::StrCat(name, " (", PlanPercent(bottleneck.share), " of the step)")
               : absl::StrCat(name, " (nothing)");
  return absl::StrCat(name, " (", PlanPercent(bottleneck.share), " of the GPU",
                      bottleneck.share > 1 ? ": does not fit)" : ")");
}

}  // namespace

std::string PlanHeadline(const PlanReport& r) {
  const plan::Input& in = r.plan.input;
  const bool sparse = in.model.used() < in.model.parameters;
  return absl::StrCat(
      r.model.empty() ? "" : r.model + ": ", QuantityText(in.model.parameters), " parameters",
      sparse ? absl::StrCat(" (", QuantityText(in.model.used()), " used by a token)") : "", ", ",
      in.model.layers, " layers, sequences of ", in.model.sequence, ", on ", Count(in.cluster.gpus),
      " ", r.gpu, " in ", r.dtype, " (", absl::StrFormat("%.4g", in.cluster.peak / 1e12),
      " TFLOP/s at ", PlanPercent(in.cluster.mfu), "), ", QuantityText(in.layout.batch_tokens),
      " tokens per step");
}

std::string PlanBottleneckLine(const PlanReport& r) {
  const auto& bottlenecks = r.plan.bottlenecks;
  return absl::StrCat("Bottleneck: ", BottleneckText(bottlenecks[0]),
                      "; next: ", BottleneckText(bottlenecks[1]));
}

// Returns what determines the time of the step: "Computing limits this step: 94.8 s; the network
// needs 1.5 s, which computing covers".
std::string PlanLimit(const plan::Plan& p) {
  const double computing = p.compute_seconds / (1 - p.bubble);
  const std::string bubble =
      p.bubble > 0 ? absl::StrCat(" (", PlanPercent(p.bubble), " of it in the bubble)") : "";
  if (computing >= p.network_seconds)
    return absl::StrCat("Computing limits this step: ", SecondsText(computing), bubble,
                        p.network_seconds > 0
                            ? absl::StrCat("; the network needs ", SecondsText(p.network_seconds),
                                           ", which computing covers")
                            : "; nothing is reduced over the network");
  return absl::StrCat("The network limits this step: ", SecondsText(p.network_seconds),
                      "; computing takes ", SecondsText(computing), bubble);
}

std::vector<std::string> PlanVerdicts(const PlanReport& r) {
  const plan::Plan& p = r.plan;
  return {absl::StrCat(PlanLimit(p), ". A step takes at least ", SecondsText(p.step_seconds), ", ",
                       QuantityText(p.input.layout.batch_tokens / p.step_seconds), " tokens/s"),
          "Crossover: " + Standing(p), "Batch: " + Floor(p)};
}

std::vector<PlanTable> PlanTables(const PlanReport& r) {
  std::vector<PlanTable> tables;
  if (r.plan.critical_tokens > 0) tables.push_back(LeverTable(r.plan));
  tables.push_back(StageTable(r.plan));
  tables.push_back(StateTable(r.plan));
  tables.push_back(ActivationTable(r.plan));
  return tables;
}

std::vector<std::string> PlanAssumptions(const PlanReport& r) {
  const plan::Input& in = r.plan.input;
  const plan::Layout& l = in.layout;
  std::vector<std::string> out = {
      absl::StrFormat("6 FLOPs per token and used parameter; FLOPs of attention are not counted "
                      "(%.1f %% more at this length)",
                      in.model.hidden == 0
                          ? 0.0
                          : 100 * 12.0 * static_cast<double>(in.model.layers) *
                                static_cast<double>(in.model.hidden) *
                                static_cast<double>(in.model.sequence) / (6 * in.model.used())),
      absl::StrCat(plan::ShardingName(l.sharding), ": ", l.weight_bytes, " bytes per weight, ",
                   l.gradient_bytes, " per gradient, ", l.optimizer_bytes,
                   " of optimizer state; weights gathered for ", l.gathers,
                   l.gathers == 1 ? " micro-batch" : " micro-batches", " a step"),
      absl::StrCat("a GPU gets ", BytesText(plan::GroupBandwidth(in)),
                   "/s for a collective: domains of ", in.cluster.domain, ", ",
                   BytesText(in.cluster.link), "/s between domains, ",
                   BytesText(in.cluster.domain_link), "/s within"),
      "network and computation overlap as far as possible: times are lower bounds"};
  if (in.model.hidden == 0)
    out[0] = "6 FLOPs per token and used parameter; FLOPs of attention are not counted";
  out.insert(out.end(), r.notes.begin(), r.notes.end());
  return out;
}

}  // namespace plumbline::audit
