#include "audit/render/timeline_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/timeline/timeline.h"
#include "audit/render/text_util.h"
#include "nlohmann/json.hpp"
#include "rules/bases/timeline_rule.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

enum Track : int { kSteps = 1, kGaps = 2, kFindings = 3, kWaits = 4 };

// Process ids that do not collide with those of the original trace.
constexpr uint32_t kFirstProcess = 1'000'000;
constexpr uint32_t kMostRanks = 1u << 17;

// Builds the events. At today's dates a double has a resolution of a quarter of a microsecond, so
// nanoseconds are written as text.
class TraceEvents {
 public:
  void Name(uint32_t process, int track, const char* kind, const std::string& name) {
    Json event = {
        {"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", track}, {"args", {{"name", name}}}};
    Add(event.dump());
  }

  void Complete(uint32_t process, Track track, const std::string& name, int64_t start_ns,
                uint64_t duration_ns, const Json& arguments) {
    const Json event = {{"ph", "X"},
                        {"cat", "plumbline"},
                        {"name", name},
                        {"pid", process},
                        {"tid", static_cast<int>(track)},
                        {"args", arguments}};
    std::string text = event.dump(-1, ' ', false, Json::error_handler_t::replace);
    text.pop_back();
    Add(text + ",\"ts\":" + Micro(start_ns) +
        ",\"dur\":" + Micro(static_cast<int64_t>(duration_ns)) + "}");
  }

  std::string Take() {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + events_ + "\n]}\n";
  }

 private:
  static std::string Micro(int64_t ns) {
    const bool negative = ns < 0;
    const uint64_t size = negative ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    std::string decimals = std::to_string(1000 + size % 1000).substr(1);
    return (negative ? "-" : "") + std::to_string(size / 1000) + "." + decimals;
  }
  void Add(const std::string& event) {
    events_ += events_.empty() ? "\n" : ",\n";
    events_ += event;
  }

  std::string events_;
};

void AddGaps(const SeenTimeline& seen, uint32_t process, TraceEvents* events) {
  const v1::Timeline& t = seen.timeline;
  for (const v1::TimelineGap& gap : t.gaps()) {
    const bool named = gap.name() < static_cast<uint32_t>(t.names_size());
    events->Complete(process, kGaps, timeline::CauseName(gap.cause()),
                     t.start_ns() + static_cast<int64_t>(gap.start_ns()), gap.duration_ns(),
                     {{"ended_by", named ? t.names(static_cast<int>(gap.name())) : ""},
                      {"occurrence", gap.occurrence()}});
  }
}

void AddSteps(const SeenTimeline& seen, uint32_t process, TraceEvents* events) {
  const v1::Timeline& t = seen.timeline;
  for (const v1::TimelineStep& step : t.steps()) {
    events->Complete(process, kSteps, "step " + std::to_string(step.number()),
                     t.start_ns() + step.start_ns(), step.duration_ns(),
                     {{"busy_ns", step.busy_ns()},
                      {"compute_ns", step.compute_ns()},
                      {"communication_ns", step.communication_ns()},
                      {"exposed_communication_ns", step.exposed_ns()}});
  }
}

// Adds the waits of the host, by class. They span the whole window, since single spans are not
// kept.
void AddWaits(const SeenTimeline& seen, uint32_t process, TraceEvents* events) {
  const v1::Timeline& t = seen.timeline;
  for (const v1::TimelineWait& wait : t.waits()) {
    events->Complete(process, kWaits, timeline::CauseName(wait.cause()), t.start_ns(), t.span_ns(),
                     {{"spans", wait.spans()},
                      {"union_ns", wait.union_ns()},
                      {"idle_ns", wait.idle_ns()},
                      {"median_ns", wait.median_ns()},
                      {"longest", wait.name()}});
  }
}

bool Speaks(const v1::Finding& finding, const SeenTimeline& seen) {
  const auto& ranks = finding.site().ranks();
  if (finding.site().op() == rules::kTimelineOp && finding.site().layer() != seen.layer)
    return false;
  return finding.rule().starts_with("performance/") && finding.site().run() == seen.run &&
         std::find(ranks.begin(), ranks.end(), seen.rank) != ranks.end();
}

// Adds findings. They span the whole window, which they describe.
void AddFindings(const AuditResult& result, const SeenTimeline& seen, uint32_t process,
                 TraceEvents* events) {
  for (const v1::Finding* finding : result.findings()) {
    if (!Speaks(*finding, seen)) continue;
    events->Complete(process, kFindings, finding->title(), seen.timeline.start_ns(),
                     seen.timeline.span_ns(),
                     {{"rule", finding->rule()},
                      {"explanation", finding->explanation()},
                      {"fix", finding->fix()},
                      {"fingerprint", finding->fingerprint()}});
  }
}

}  // namespace

std::string RenderTimeline(const AuditResult& result) {
  TraceEvents events;
  // Each rank, and each further GPU of a rank, is a process of the trace.
  std::map<std::pair<std::string, uint32_t>, bool> named;
  std::map<std::string, uint32_t> layers = {{"", 0}};
  for (const SeenTimeline& seen : result.timelines) {
    if (!rules::WrongWith(seen.timeline).empty()) continue;
    const auto layer = static_cast<uint32_t>(layers.size());
    const uint32_t process = kFirstProcess + seen.rank +
                             kMostRanks * layers.try_emplace(seen.layer, layer).first->second;
    if (!std::exchange(named[{seen.layer, seen.rank}], true)) {
      const std::string of = seen.layer.empty() ? "" : ", " + seen.layer;
      events.Name(process, 0, "process_name", "plumbline: rank " + std::to_string(seen.rank) + of);
      events.Name(process, kSteps, "thread_name", "steps");
      events.Name(process, kGaps, "thread_name", "GPU idle, by cause");
      events.Name(process, kFindings, "thread_name", "findings");
      events.Name(process, kWaits, "thread_name", "host waits, by class");
    }
    AddSteps(seen, process, &events);
    AddGaps(seen, process, &events);
    AddWaits(seen, process, &events);
    AddFindings(result, seen, process, &events);
  }
  return events.Take();
}

}  // namespace plumbline::audit
