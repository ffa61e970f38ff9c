// Converts a call's tensors to its evidence: the CPU reference, then the message.
#include <string>

#include "kernels/evidence/routing.h"
#include "probes/calls/tensor_checks.h"
#include "probes/routing_probe.h"

namespace plumbline::probes {
namespace {

// Fills the parts of a router that only the recorder knows; FillRouting sets the others.
void FillDeclared(const RoutingCall& call, v1::RoutingConfig* out) {
  out->set_capacity_kind(static_cast<v1::RoutingConfig::CapacityKind>(call.capacity_kind));
  out->set_capacity(call.capacity);
  out->set_pool(static_cast<v1::RoutingConfig::Pool>(call.pool));
  out->set_flatten(static_cast<v1::RoutingConfig::Flatten>(call.flatten));
  out->set_bias_captured(static_cast<v1::RoutingConfig::BiasCaptured>(call.bias_captured));
  out->set_randomness(std::string(call.randomness));
  out->set_mode(std::string(call.mode));
  out->set_capacity_source(static_cast<v1::RoutingConfig::CapacitySource>(call.capacity_source));
  out->set_policy(std::string(call.policy));
}

}  // namespace

uint64_t SummaryBytes(const RoutingCall& call) {
  // Fixed fields, doubles, histograms, identifiers and pools; up to two bytes for each load and
  // each refusal.
  constexpr uint64_t kFixed = 308;
  return kFixed + 4 * static_cast<uint64_t>(call.input.scores.shape[1]);
}

absl::Status MeasureRouting(const RoutingCall& call, bool sample, uint64_t sample_max_bytes,
                            v1::Routing* out) {
  thread_local RoutingStats stats;  // keeps its vectors' memory from call to call
  if (absl::Status s = SummariseRouting(call.input, &stats); !s.ok()) return s;
  FillDeclared(call, out->mutable_config());
  return FillRouting(call.input, stats, sample, sample_max_bytes, out);
}

absl::Status FinishRouting(const RoutingCall& call, const RoutingPlan& plan, const RoutingRaw& raw,
                           bool sample, uint64_t sample_max_bytes, v1::Routing* out) {
  thread_local RoutingStats stats;
  if (absl::Status s = plumbline::FinishRouting(plan, raw, &stats); !s.ok()) return s;
  FillDeclared(call, out->mutable_config());
  const uint64_t bytes = SampleBytes(call);
  const bool left_out = sample && bytes <= sample_max_bytes && call.input.scores.data == nullptr;
  if (left_out) {
    out->set_no_sample_reason(NoRoom(bytes));
  }
  return FillRouting(call.input, stats, sample && !left_out, sample_max_bytes, out);
}

}  // namespace plumbline::probes
