#include "server/web/web_events.h"

#include <atomic>
#include <map>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace plumbline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBeat{1};
constexpr std::chrono::hours kLasts{1};  // then the page reconnects with its credentials
constexpr int kMostAtOnce = 200;         // incidents; the others follow shortly after

std::string EventText(const char* name, const Json& data, const std::string& id = "") {
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  return absl::StrCat(id.empty() ? "" : absl::StrCat("id: ", id, "\n"), "event: ", name,
                      "\ndata: ", text, "\n\n");
}

class WebEvents : public EventSource {
 public:
  WebEvents(const WebSources* sources, RunSnapshot* runs, const EventIds* ids,
            std::shared_ptr<Lease> lease, const std::string& last_event,
            std::shared_ptr<void> place)
      : sources_(sources),
        runs_(runs),
        ids_(ids),
        lease_(std::move(lease)),
        place_(std::move(place)),
        ends_(Clock::now() + kLasts) {
    const IncidentTable& table = *sources_->query.incident_table;
    identity_ = table.identity();
    cursor_ = table.position();
    sees_all_ = lease_->Everywhere(Scope::kRead);
    // Continue from a valid position of this table. A caller with access to only some runs must use
    // an encrypted id: with plain numbers the caller could find out where changes of other runs
    // are.
    const std::optional<uint64_t> position =
        sees_all_ ? EventIds::FromPlain(last_event, identity_) : ids_->FromSealed(last_event);
    if (position) cursor_ = std::min(cursor_, table.CursorOf(*position));
    filter_.visible = [raw = lease_.get()](const std::string& run) {
      return raw->Over(Scope::kRead, run);
    };
    lease_->OnRevoked([revoked = revoked_](const absl::Status&) { *revoked = true; });
  }

  std::string Take(bool* over) override {
    const auto now = Clock::now();
    if (*revoked_ || now >= ends_) {
      *over = true;
      return "";
    }
    std::string out;
    if (!sent_hello_) {
      sent_hello_ = true;
      out = EventText("hello", {{"now", NsText(static_cast<int64_t>(UnixNs()))}}, Id());
    }
    AddIncidents(&out);
    if (now >= next_runs_) {
      next_runs_ = now + RunSnapshot::kPause;
      AddRuns(&out);
    }
    if (now >= next_beat_) {
      next_beat_ = now + kBeat;
      AddBeat(&out);
    }
    return out;
  }

 private:
  std::string Id() const {
    return sees_all_ ? EventIds::Plain(identity_, cursor_) : ids_->Sealed(cursor_);
  }

  void AddIncidents(std::string* out) {
    IncidentTable::Change change;
    for (int i = 0; i < kMostAtOnce; ++i) {
      if (!sources_->query.incident_table->Next(filter_, &cursor_, &change)) return;
      absl::StrAppend(out, EventText("incident", IncidentRow(change), Id()));
    }
  }

  // Adds the runs that changed since they were last sent to this page.
  void AddRuns(std::string* out) {
    Json changed = Json::array();
    const auto runs = runs_->Take();
    for (const v1::RunInfo& run : *runs) {
      if (!lease_->Over(Scope::kRead, run.run())) continue;
      const Reported reported{run.newest_step(), run.ranks_connected(), run.open_incidents(),
                              run.lost()};
      auto [known, fresh] = reported_.try_emplace(run.run(), reported);
      if (!fresh && known->second == reported) continue;
      known->second = reported;
      changed.push_back({{"run", run.run()},
                         {"newest_step", run.newest_step()},
                         {"closed_step", run.closed_step()},
                         {"connected", run.ranks_connected()},
                         {"finished", run.ranks_finished()},
                         {"last_seen", NsText(run.last_seen_unix_ns())},
                         {"open_incidents", run.open_incidents()},
                         {"lost", run.lost()}});
    }
    if (!changed.empty()) absl::StrAppend(out, EventText("runs", changed));
  }

  void AddBeat(std::string* out) const {
    const auto now = static_cast<int64_t>(UnixNs());
    const int64_t oldest = sources_->query.judge->oldest_queued_unix_ns();
    absl::StrAppend(
        out, EventText("beat",
                       {{"now", NsText(now)},
                        {"lag_ms", oldest > 0 ? std::max<int64_t>(0, now - oldest) / 1'000'000 : 0},
                        {"replay", sources_->query.judge->catching_up()}}));
  }

  using Reported = std::tuple<int64_t, uint32_t, uint64_t, uint64_t>;

  const WebSources* const sources_;
  RunSnapshot* const runs_;
  const EventIds* const ids_;
  const std::shared_ptr<Lease> lease_;
  const std::shared_ptr<void> place_;
  const Clock::time_point ends_;
  const std::shared_ptr<std::atomic<bool>> revoked_ = std::make_shared<std::atomic<bool>>(false);
  IncidentFilter filter_;
  std::string identity_;
  uint64_t cursor_ = 0;
  bool sees_all_ = false;
  bool sent_hello_ = false;
  Clock::time_point next_runs_{}, next_beat_{};
  std::map<std::string, Reported> reported_;  // by run
};

}  // namespace

std::shared_ptr<const RunSnapshot::Runs> RunSnapshot::Take() {
  const auto now = Clock::now();
  const MutexLock lock(mutex_);
  if (runs_ == nullptr || now - taken_ >= kPause) {
    runs_ = std::make_shared<const Runs>(judge_->Runs());
    taken_ = now;
  }
  return runs_;
}

std::shared_ptr<EventSource> MakeWebEvents(const WebSources* sources, RunSnapshot* runs,
                                           const EventIds* ids, std::shared_ptr<Lease> lease,
                                           const std::string& last_event,
                                           std::shared_ptr<void> place) {
  return std::make_shared<WebEvents>(sources, runs, ids, std::move(lease), last_event,
                                     std::move(place));
}

}  // namespace plumbline::server
