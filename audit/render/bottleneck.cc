#include "audit/render/bottleneck.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_format.h"

namespace plumbline::audit {

std::vector<timeline::Bottleneck> BottlenecksOf(const AuditResult& result) {
  // idle-comb judges every trace and has the shares in its details.
  std::map<std::string, double> sums;
  double traces = 0;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    const auto& fields = verdict->details().fields();
    const auto bottlenecks = fields.find("bottlenecks");
    if (verdict->rule() != "performance/idle-comb" || bottlenecks == fields.end()) continue;
    traces += 1;
    for (const auto& [id, share] : bottlenecks->second.struct_value().fields())
      sums[id] += share.number_value();
  }
  // Build a timeline from these means to sort them.
  if (traces == 0) return {};
  constexpr double kWhole = 1e9;
  const auto part = [&](const char* id) {
    const auto found = sums.find(id);
    return found == sums.end() ? 0 : std::clamp(found->second / traces, 0.0, 1.0) * kWhole;
  };
  v1::Timeline mean;
  const double exposed = part("cable") + part("bubble");
  mean.set_stage_known(part("bubble") > part("cable"));
  mean.set_span_ns(static_cast<uint64_t>(exposed + part("host") + part("gpu-traffic")));
  mean.set_exposed_ns(static_cast<uint64_t>(exposed));
  mean.set_busy_ns(std::min(static_cast<uint64_t>(exposed + part("gpu-traffic")), mean.span_ns()));
  return timeline::BottlenecksOf(mean);
}

namespace {

// Returns the straggler that the report names. If there is none, returns null.
const v1::Finding* Straggler(const AuditResult& result) {
  for (const v1::Finding* finding : result.findings()) {
    const bool named = finding->rule() == "performance/straggler" && !finding->suppressed();
    if (named && finding->level() >= v1::LEVEL_WARNING) return finding;
  }
  return nullptr;
}

}  // namespace

std::string BottleneckLineOf(const AuditResult& result) {
  const std::vector<timeline::Bottleneck> bottlenecks = BottlenecksOf(result);
  const v1::Finding* const straggler = Straggler(result);
  if (bottlenecks.empty() || straggler == nullptr || bottlenecks[0].id != "cable")
    return timeline::BottleneckLine(bottlenecks);
  // The other ranks wait in collectives, which a timeline counts as the cable.
  return absl::StrFormat(
      "Bottleneck: a straggler (%s), for which the other ranks wait, %.3g %% of the time.",
      straggler->title(), 100 * bottlenecks[0].share);
}

}  // namespace plumbline::audit
