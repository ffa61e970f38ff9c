#include "analysis/timeline/toll.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::timeline {
namespace {

constexpr double kWorthATell = 0.05;  // customary: one GPU in twenty

constexpr std::string_view kTrafficId = "gpu-traffic";

std::string Paid(const Toll& toll) {
  return absl::StrFormat("%s, %.3g %% of the time", TollName(toll.id), 100 * toll.share);
}

}  // namespace

std::string_view TollName(std::string_view id) {
  if (id == "cable") return "the cable";
  if (id == "bubble") return "the bubble";
  if (id == kTrafficId) return "traffic inside the GPU";
  return id == "host" ? "none of a cluster's, the GPU waits for its host" : "";
}

std::vector<Toll> TollsOf(const v1::Timeline& t) {
  if (t.span_ns() == 0 || t.busy_ns() > t.span_ns() || t.exposed_ns() > t.busy_ns()) return {};
  const auto whole = static_cast<double>(t.span_ns());
  const auto share = [&](uint64_t part) { return static_cast<double>(part) / whole; };
  std::vector<Toll> tolls = {{t.stage_known() ? "bubble" : "cable", share(t.exposed_ns())},
                             {"host", share(t.span_ns() - t.busy_ns())},
                             {kTrafficId, share(t.busy_ns() - t.exposed_ns())}};
  // First the shares above the limit, then the kernels, then the rest.
  const auto place = [](const Toll& toll) {
    if (toll.id == kTrafficId) return 1;
    return toll.share >= kWorthATell ? 0 : 2;
  };
  std::stable_sort(tolls.begin(), tolls.end(), [&](const Toll& a, const Toll& b) {
    return place(a) != place(b) ? place(a) < place(b) : a.share > b.share;
  });
  return tolls;
}

std::vector<Toll> TollsOf(const std::vector<const v1::Timeline*>& timelines) {
  double span = 0, busy = 0, exposed = 0;
  bool stages = false;
  for (const v1::Timeline* t : timelines) {
    if (TollsOf(*t).empty()) continue;
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
  return TollsOf(all);
}

std::string TollLine(const std::vector<Toll>& tolls) {
  if (tolls.empty()) return "";
  std::string line = absl::StrCat("Toll: ", Paid(tolls[0]));
  if (tolls.size() > 1) absl::StrAppend(&line, "; behind it ", Paid(tolls[1]));
  return line + ".";
}

}  // namespace plumbline::timeline
