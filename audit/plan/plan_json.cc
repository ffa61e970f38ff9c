#include <cmath>
#include <nlohmann/json.hpp>

#include "audit/plan/plan_report.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json FromInput(const PlanReport& r) {
  const plan::Input& in = r.plan.input;
  return {{"model",
           {{"name", ValidUtf8(r.model)},
            {"parameters", in.model.parameters},
            {"active", in.model.used()},
            {"layers", in.model.layers},
            {"hidden", in.model.hidden},
            {"heads", in.model.heads},
            {"sequence", in.model.sequence}}},
          {"cluster",
           {{"gpu", ValidUtf8(r.gpu)},
            {"dtype", r.dtype},
            {"gpus", in.cluster.gpus},
            {"peak_flops", in.cluster.peak},
            {"mfu", in.cluster.mfu},
            {"memory_bytes", in.cluster.memory},
            {"domain", in.cluster.domain},
            {"link_bytes_per_second", in.cluster.link},
            {"domain_link_bytes_per_second", in.cluster.domain_link},
            {"all_rails", in.cluster.rails}}},
          {"layout",
           {{"batch_tokens", in.layout.batch_tokens},
            {"micro_batch_sequences", in.layout.micro_sequences},
            {"tensor", in.layout.tensor},
            {"pipeline", in.layout.stages},
            {"virtual", in.layout.virtual_stages},
            {"sharding", plan::ShardingName(in.layout.sharding)},
            {"weight_bytes", in.layout.weight_bytes},
            {"gradient_bytes", in.layout.gradient_bytes},
            {"optimizer_bytes", in.layout.optimizer_bytes},
            {"gathers", in.layout.gathers},
            {"reductions", in.layout.reductions}}}};
}

Json FromStages(const plan::Plan& plan) {
  Json out = Json::array();
  for (const plan::StageCost& s : plan.stages)
    out.push_back({{"stages", s.stages},
                   {"micro_batches", s.micro_batches},
                   {"bubble", s.bubble},
                   {"network_seconds", s.network_seconds},
                   {"step_seconds", s.step_seconds}});
  return out;
}

Json FromStates(const plan::Plan& plan) {
  Json out = Json::array();
  for (const plan::StateBytes& s : plan.states)
    out.push_back({{"sharding", plan::ShardingName(s.sharding)},
                   {"weights", s.weights},
                   {"gradients", s.gradients},
                   {"optimizer", s.optimizer},
                   {"total", s.total()}});
  return out;
}

Json FromLevers(const plan::Plan& plan) {
  Json out = Json::array();
  for (const plan::Lever& l : plan.levers)
    out.push_back({{"with", l.what},
                   {"critical_tokens_per_gpu", l.critical_tokens},
                   {"tokens_per_gpu", l.tokens_per_gpu}});
  return out;
}

Json FromBottlenecks(const plan::Plan& plan) {
  Json out = Json::array();
  for (const plan::BottleneckShare& t : plan.bottlenecks)
    out.push_back({{"bottleneck", plan::BottleneckName(t.bottleneck)},
                   {"toll", plan::BottleneckName(t.bottleneck)},  // former name, for one version
                   {"share", t.share},
                   {"of", t.is_time ? "step" : "memory"}});
  return out;
}

}  // namespace

std::string PlanJson(const PlanReport& r) {
  const plan::Plan& p = r.plan;
  Json out = {{"schema", "plumbline.plan/1"}};
  out.update(FromInput(r));
  out["compute_seconds"] = p.compute_seconds;
  out["network_seconds"] = p.network_seconds;
  out["bubble"] = p.bubble;
  out["step_seconds"] = p.step_seconds;
  out["exposed_share"] = p.exposed_share;
  out["tokens_per_gpu"] = p.tokens_per_gpu;
  out["critical_tokens_per_gpu"] = p.critical_tokens;
  out["replicas"] = plan::DataParallel(p.input);
  out["micro_batches"] = p.micro_batches;
  out["crossover_with"] = FromLevers(p);
  out["pipeline"] = FromStages(p);
  out["state_bytes"] = FromStates(p);
  out["activation_bytes"] = {{"all", NumberOrNull(p.activations.all)},
                             {"selective", NumberOrNull(p.activations.selective)},
                             {"full", NumberOrNull(p.activations.full)}};
  out["bottlenecks"] = FromBottlenecks(p);
  out["tolls"] = out["bottlenecks"];  // former name, for one version
  Json assumptions = Json::array();
  for (const std::string& line : PlanAssumptions(r)) assumptions.push_back(ValidUtf8(line));
  out["assumptions"] = std::move(assumptions);
  return out.dump(2) + "\n";
}

}  // namespace plumbline::audit
