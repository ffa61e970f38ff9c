#include "server/alerts/alert_center.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kLeastPause{20};  // changes of a burst are handled together
constexpr std::chrono::seconds kRetry{1};             // after the log could not be written
constexpr std::chrono::hours kRetention{1};
constexpr int64_t kKeptNs = int64_t{30} * 86400 * 1'000'000'000;  // for delivered alerts

}  // namespace

absl::StatusOr<std::unique_ptr<AlertCenter>> AlertCenter::Start(AlertOptions options,
                                                                IncidentTable* incident_table) {
  std::unique_ptr<AlertCenter> center(new AlertCenter(std::move(options), incident_table));
  if (auto s = center->Init(); !s.ok()) return s;
  return center;
}

absl::Status AlertCenter::Init() {
  if (options_.clock) retention_clock_ = ConfirmedClock(options_.clock, options_.clock);
  if (!options_.clock) options_.clock = [] { return static_cast<int64_t>(UnixNs()); };
  if (!options_.settled) options_.settled = [] { return true; };
  if (!options_.make_sink) {
    options_.make_sink = [clock = options_.clock](const AlertRoute& r) {
      return MakeSink(r, clock);
    };
  }
  auto log = AlertLog::Open(options_.path);
  if (!log.ok()) return log.status();
  log_ = std::move(*log);
  for (const AlertRoute& route : options_.config.routes) {
    senders_.push_back(std::make_unique<RouteSender>(route, options_.config.page, log_.get(),
                                                     options_.make_sink(route), options_.clock,
                                                     options_.times));
  }
  subscription_ = incident_table_->Subscribe([this] {
    const MutexLock lock(mutex_);
    changed_ = true;
    wake_.NotifyOne();
  });
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

AlertCenter::~AlertCenter() { Stop(); }

void AlertCenter::Stop() {
  incident_table_->Unsubscribe(subscription_);
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
  for (const auto& sender : senders_) sender->BeginStop();
  for (const auto& sender : senders_) sender->Cancel();
  for (const auto& sender : senders_) sender->Stop();
}

void AlertCenter::Loop() {
  if (!WaitSettled()) return;
  while (!TakeUp().ok()) {
    if (!WaitForNews(Clock::now() + kRetry)) return;
  }
  for (;;) {
    Look();
    const Clock::time_point next = DecideDue(false);
    if (!WaitForNews(next)) break;
  }
  Look();
  DecideDue(true);
}

// Returns false if the thread must stop first.
bool AlertCenter::WaitSettled() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    lock.Unlock();
    const bool settled = options_.settled();
    lock.Lock();
    if (settled) return true;
    wake_.WaitFor(lock, kLeastPause, [this]() PLUMB_REQUIRES(mutex_) { return stopping_; });
  }
  return false;
}

// Returns false if the thread must stop.
bool AlertCenter::WaitForNews(Clock::time_point until) {
  MutexLock lock(mutex_);
  wake_.WaitFor(lock, kLeastPause, [this]() PLUMB_REQUIRES(mutex_) { return stopping_; });
  wake_.WaitUntil(lock, until, [this]() PLUMB_REQUIRES(mutex_) { return changed_ || stopping_; });
  changed_ = false;
  return !stopping_;
}

// Restores the receivers' states that an earlier process stored.
absl::Status AlertCenter::TakeUp() {
  const auto position = log_->Position();
  if (!position.ok()) return position.status();
  // without a stored state, resolved incidents are not reported
  uint64_t known = incident_table_->position();
  if (position->first == incident_table_->identity()) {
    known = std::min(known, incident_table_->CursorOf(position->second));
  } else if (!position->first.empty()) {
    LogWarning("alerts: the log belongs to another journal: open incidents are notified again");
    if (auto s = log_->Forget(); !s.ok()) return s;
  }
  auto reported = log_->AllReported();
  if (!reported.ok()) return reported.status();
  std::set<std::string> routes;
  for (const AlertRoute& route : options_.config.routes) routes.insert(route.name);
  if (auto s = log_->GiveUpOthers(routes, options_.clock()); !s.ok()) return s;
  decider_ = std::make_unique<AlertDecider>(options_.config, std::move(*reported), known);
  position_ = known;
  const std::vector<AlertDecision> stale = decider_->Stale(*incident_table_);
  if (auto s = log_->Keep(stale, incident_table_->identity(), position_, options_.clock()); !s.ok())
    return s;
  decider_->Apply(stale);
  return absl::OkStatus();
}

void AlertCenter::Look() {
  const Clock::time_point now = Clock::now();
  const auto seconds = [](double s) {
    return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
  };
  const auto gather = seconds(options_.config.gather_seconds);
  const auto most = std::max(gather, seconds(options_.config.gather_most_seconds));
  IncidentTable::Change change;
  while (incident_table_->Next({}, &cursor_, &change)) {
    const std::string& fingerprint = change.status.fingerprint();
    if (pending_.contains(fingerprint)) continue;
    const std::vector<AlertDecision> decisions = decider_->Decide(change, *incident_table_);
    if (decisions.empty()) continue;
    pending_[fingerprint] =
        AlertDecider::Opens(decisions) ? Pending{now + gather, now + most} : Pending{now, now};
  }
}

// Returns true if more ranks may still be found in the incident's newest step.
bool AlertCenter::StillGathers(const IncidentTable::Change& change,
                               const std::vector<AlertDecision>& decisions) const {
  return AlertDecider::Opens(decisions) && change.status.seen_step() > change.closed_step;
}

// Decides about due incidents (or all), from the present state. Returns the time when the next one
// is due.
AlertCenter::Clock::time_point AlertCenter::DecideDue(bool all) {
  const Clock::time_point now = Clock::now();
  std::vector<AlertDecision> decisions;
  std::vector<std::string> done;
  Clock::time_point next = now + kRetention;
  for (const auto& [fingerprint, when] : pending_) {
    if (when.due > now && !all) {
      next = std::min(next, when.due);
      continue;
    }
    const auto change = incident_table_->Get(fingerprint);
    std::vector<AlertDecision> mine;
    if (change.ok()) mine = decider_->Decide(*change, *incident_table_);
    if (change.ok() && !all && now < when.latest && StillGathers(*change, mine)) {
      next = std::min(next, now + kLeastPause);
      continue;
    }
    done.push_back(fingerprint);
    for (AlertDecision& d : mine) decisions.push_back(std::move(d));
  }
  if (done.size() == pending_.size()) position_ = cursor_;
  if (!decisions.empty() && !Keep(decisions)) return now + kRetry;
  for (const std::string& fingerprint : done) pending_.erase(fingerprint);
  if (now >= next_retention_) {
    log_->Retain(retention_clock_.Now() - kKeptNs).IgnoreError();
    next_retention_ = now + kRetention;
  }
  return next;
}

bool AlertCenter::Keep(const std::vector<AlertDecision>& decisions) {
  if (decisions.empty()) return true;
  const absl::Status kept =
      log_->Keep(decisions, incident_table_->identity(), position_, options_.clock());
  if (!kept.ok()) {
    if (!complained_) LogError("alerts: {}", std::string(kept.message()));
    complained_ = true;
    return false;
  }
  complained_ = false;
  decider_->Apply(decisions);
  for (const auto& sender : senders_) {
    bool mine = false, refresh = false;
    for (const AlertDecision& d : decisions) {
      if (d.route != sender->route().name) continue;
      mine = true;
      refresh = refresh || !d.notification;
    }
    if (mine) sender->Wake(refresh);
  }
  return true;
}

std::vector<AlertCenter::Route> AlertCenter::Routes() const {
  std::vector<Route> out;
  for (const auto& sender : senders_) {
    const auto waiting = log_->WaitingOf(sender->route().name);
    out.push_back({sender->route().name, sender->route().sink(), &sender->counts(),
                   waiting.ok() ? *waiting : AlertLog::Waiting()});
  }
  return out;
}

bool AlertCenter::Routed(const v1::Finding& finding) const {
  return std::any_of(options_.config.routes.begin(), options_.config.routes.end(),
                     [&](const AlertRoute& route) { return route.Matches(finding); });
}

absl::StatusOr<std::vector<AlertDelivery>> AlertCenter::History(
    const std::string& fingerprint) const {
  return log_->History(fingerprint);
}

std::vector<v1::AlertDelivery> AlertCenter::Deliveries(const std::string& fingerprint) const {
  std::vector<v1::AlertDelivery> out;
  const auto history = History(fingerprint);
  if (!history.ok()) return out;
  for (const AlertDelivery& d : *history) {
    v1::AlertDelivery& one = out.emplace_back();
    one.set_route(d.route);
    one.set_event(EventWord(d.event));
    one.set_revision(d.revision);
    one.set_state(StateWord(d.state));
    one.set_tries(d.tries);
    one.set_decided_unix_ns(d.decided_unix_ns);
    one.set_done_unix_ns(d.done_unix_ns);
    one.set_problem(d.problem);
  }
  return out;
}

}  // namespace plumbline::server
