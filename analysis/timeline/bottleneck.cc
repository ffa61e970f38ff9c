#include "analysis/timeline/bottleneck.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::timeline {
namespace {

constexpr double kWorthAReport = 0.05;  // customary: one GPU in twenty

constexpr std::string_view kTrafficId = "gpu-traffic";

std::string Paid(const Bottleneck& bottleneck) {
  return absl::StrFormat("%s, %.3g %% of the time", BottleneckName(bottleneck.id),
                         100 * bottleneck.share);
}

}  // namespace

std::string_view BottleneckName(std::string_view id) {
  if (id == "cable") return "the cable";
  if (id == "bubble") return "the bubble";
  if (id == kTrafficId) return "transfers inside the GPU";
  return id == "host" ? "the host (the GPU waits for it, not for the network)" : "";
}

std::vector<Bottleneck> BottlenecksOf(const v1::Timeline& t) {
  if (t.span_ns() == 0 || t.busy_ns() > t.span_ns() || t.exposed_ns() > t.busy_ns()) return {};
  const auto whole = static_cast<double>(t.span_ns());
  const auto share = [&](uint64_t part) { return static_cast<double>(part) / whole; };
  std::vector<Bottleneck> bottlenecks = {
      {t.stage_known() ? "bubble" : "cable", share(t.exposed_ns())},
      {"host", share(t.span_ns() - t.busy_ns())},
      {kTrafficId, share(t.busy_ns() - t.exposed_ns())}};
  // First the shares above the limit, then the kernels, then the rest.
  const auto place = [](const Bottleneck& bottleneck) {
    if (bottleneck.id == kTrafficId) return 1;
    return bottleneck.share >= kWorthAReport ? 0 : 2;
  };
  std::stable_sort(bottlenecks.begin(), bottlenecks.end(),
                   [&](const Bottleneck& a, const Bottleneck& b) {
                     return place(a) != place(b) ? place(a) < place(b) : a.share > b.share;
                   });
  return bottlenecks;
}

std::vector<Bottleneck> BottlenecksOf(const std::vector<const v1::Timeline*>& timelines) {
  double span = 0, busy = 0, exposed = 0;
  bool stages = false;
  for (const v1::Timeline* t : timelines) {
    if (BottlenecksOf(*t).empty()) continue;
    span += static_cast<double>(t->span_ns());
    busy += static_cast<double>(t->busy_ns());
    exposed += static_cast<double>(t->exposed_ns());
    stages |= t->stage_known();
  }
  if (!(span > 0)) return {};
  constexpr double kWhole = 1e12;
  v1::Timeline all;
  all.set_stage_known(stages);
  all.set_span_ns(static_cast<uint64_t>(kWhole));
  all.set_busy_ns(static_cast<uint64_t>(kWhole * (busy / span)));
  all.set_exposed_ns(static_cast<uint64_t>(kWhole * (exposed / span)));
  return BottlenecksOf(all);
}

std::string BottleneckLine(const std::vector<Bottleneck>& bottlenecks) {
  if (bottlenecks.empty()) return "";
  std::string line = absl::StrCat("Bottleneck: ", Paid(bottlenecks[0]));
  if (bottlenecks.size() > 1) absl::StrAppend(&line, "; next: ", Paid(bottlenecks[1]));
  return line + ".";
}

}  // namespace plumbline::timeline
