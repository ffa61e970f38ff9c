#include "server/stopping/stop_sender.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/process/log.h"

namespace plumbline::server {

// Returns true if the incident ends a training: it is open at `level` or above, and not
// acknowledged, silenced or suppressed.
bool StopSender::Ends(const IncidentTable::Change& change, v1::Level level) {
  const v1::Finding& shown = change.incident.finding();
  return change.incident.state() == v1::Incident::STATE_OPEN && !shown.suppressed() &&
         level != v1::LEVEL_UNSPECIFIED && shown.level() >= level;
}

v1::StopTraining StopSender::StopOf(const IncidentTable::Change& change, int64_t step_last) {
  const v1::Finding& shown = change.incident.finding();
  v1::StopTraining stop;
  stop.set_incident(change.status.fingerprint());
  stop.set_rule(shown.rule());
  stop.set_level(shown.level());
  stop.set_title(shown.title());
  stop.set_step_first(shown.site().step_first());
  stop.set_step_last(step_last);
  return stop;
}

// Returns false if the connection already got this directive, or enough directives.
bool StopSender::Note(Stream* stream, const v1::StopTraining& stop) {
  if (stream->sent.size() >= kMostIncidents && !stream->sent.contains(stop.incident()))
    return false;
  auto& [newest, count] = stream->sent.try_emplace(stop.incident(), INT64_MIN, 0).first->second;
  if (stop.step_last() <= newest || count >= kMostOfOne) return false;
  newest = stop.step_last();
  ++count;
  return true;
}

void StopSender::Joined(uint64_t stream_id, uint64_t connection, std::weak_ptr<Connection> line,
                        const v1::Hello& hello) {
  if (hello.stop_on() == v1::LEVEL_UNSPECIFIED || !hello.directives()) return;
  Stream stream;
  stream.connection = connection;
  stream.line = line;
  stream.level = hello.stop_on();
  for (const v1::Source& source : hello.sources()) stream.runs.insert(source.run());
  const std::set<std::string> runs = stream.runs;
  {
    const MutexLock lock(mutex_);
    Stream& known = streams_[stream_id];
    if (known.connection > connection) return;
    known = std::move(stream);
    requesting_ = streams_.size();
  }
  // Send directives for incidents that opened while the process was disconnected. Findings from
  // before its start belong to an earlier attempt.
  const int64_t began = static_cast<int64_t>(UnixNs()) - static_cast<int64_t>(hello.age_ns());
  std::vector<Order> orders;
  for (const std::string& run : runs) {
    IncidentFilter filter;
    filter.run = run;
    filter.min_level = hello.stop_on();
    for (const IncidentTable::Change& change : incidents_->List(filter)) {
      if (change.incident.updated_unix_ns() < began || !Ends(change, hello.stop_on())) continue;
      const v1::StopTraining stop = StopOf(change, change.status.seen_step());
      const MutexLock lock(mutex_);
      const auto known = streams_.find(stream_id);
      if (known == streams_.end() || known->second.connection != connection) return;
      if (Note(&known->second, stop)) orders.push_back({stream_id, line.lock(), stop});
    }
  }
  Send(orders);
}

void StopSender::Left(uint64_t stream_id, uint64_t connection) {
  if (requesting_ == 0) return;
  const MutexLock lock(mutex_);
  const auto stream = streams_.find(stream_id);
  if (stream == streams_.end() || stream->second.connection != connection) return;
  streams_.erase(stream);
  requesting_ = streams_.size();
}

void StopSender::OnFound(const v1::Finding& merged, const v1::FindingSite& now) {
  if (requesting_ == 0 || merged.suppressed() || merged.level() < v1::LEVEL_WARNING) return;
  const auto change = incidents_->Get(incidents_->IncidentOf(merged.fingerprint()));
  if (!change.ok() || !Ends(*change, v1::LEVEL_WARNING)) return;
  const v1::StopTraining stop = StopOf(*change, now.step_last());
  std::vector<Order> orders;
  {
    const MutexLock lock(mutex_);
    for (auto& [id, stream] : streams_) {
      if (!stream.runs.contains(merged.site().run()) || !Ends(*change, stream.level)) continue;
      if (Note(&stream, stop)) orders.push_back({id, stream.line.lock(), stop});
    }
  }
  Send(orders);
}

void StopSender::Send(const std::vector<Order>& orders) {
  std::map<std::string, std::pair<const v1::StopTraining*, size_t>> by_incident;
  for (const Order& order : orders) {
    if (order.line == nullptr) continue;
    v1::Directive directive;
    directive.set_stream_id(order.stream_id);
    *directive.mutable_stop() = order.stop;
    order.line->OnDirective(directive);
    ++counters_->directives;
    ++counters_->stop_directives;
    auto& [stop, count] = by_incident[order.stop.incident()];
    stop = &order.stop;
    ++count;
  }
  for (const auto& [incident, sent] : by_incident) Keep(*sent.first, sent.second);
}

// Journals the first directive of each opening of an incident, as far as this process knows.
void StopSender::Keep(const v1::StopTraining& stop, size_t processes) {
  const auto change = incidents_->Get(stop.incident());
  if (!change.ok()) return;
  {
    const MutexLock lock(mutex_);
    if (noted_.size() >= kMostNoted) noted_.clear();
    if (!noted_.insert(absl::StrCat(stop.incident(), " ", change->opened_at)).second) return;
  }
  LogWarning("{} at step {}: {} processes were ordered to end their training (stop_on)",
             stop.rule(), stop.step_last(), processes);
  v1::IncidentUpdate update;
  update.set_fingerprint(stop.incident());
  update.set_action(v1::IncidentUpdate::ACTION_STOP);
  update.set_who("plumbd");
  update.set_reason(absl::StrCat("stop_on: ", processes, processes == 1 ? " process" : " processes",
                                 " of the run ordered to end at step ", stop.step_last()));
  keep_(std::move(update));
}

}  // namespace plumbline::server
