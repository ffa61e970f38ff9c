#include "agent/core/run/directives.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/crc32c.h"
#include "base/sha256.h"

namespace plumbline::agent {
namespace {

constexpr size_t kMostAnswers = 64;  // answers that wait to be sent; the oldest are dropped

// Returns true if the name means the site. A finding about the checksum of all weights
// (precision/replica-divergence) means each of them.
bool Means(const v1::Site& name, const Site& site) {
  if (name.layer().empty() && name.op().rfind("weights_checksum", 0) == 0)
    return site.kind == SiteKind::kTensor && site.op == "weight";
  return IsMeasured(site.kind) && site.layer == name.layer() && site.op == name.op();
}

std::string Text(uint64_t n) { return std::to_string(n); }

}  // namespace

// Called for a new connection. The server then sends again which capsules it still needs, and from
// which byte.
void Directives::OnWelcome() {
  const MutexLock lock(mutex_);
  for (Capsule& capsule : capsules_) capsule.requested = false;
}

void Directives::OnDirective(const v1::Directive& directive) {
  const MutexLock lock(mutex_);
  if (directive.has_capsule()) return Send(directive.capsule());
  if (directive.has_sample()) return Sample(directive.sample());
  if (directive.has_stop()) {
    return run_->stop_order.Take(directive.stop(), run_->options.stop_on, run_->first_step.load(),
                                 run_->newest_step.load());
  }
  if (directive.quiet()) ForgetAll();
}

// Returns the next message between batches: answers first, since they are short; then the capsules,
// part by part, one after another.
bool Directives::Next(v1::AgentMessage* message) {
  const MutexLock lock(mutex_);
  if (!answers_.empty()) {
    *message = std::move(answers_.front());
    answers_.pop_front();
    return true;
  }
  for (Capsule& capsule : capsules_) {
    if (!capsule.taken || !capsule.requested || capsule.sent == capsule.bytes.size()) continue;
    *message->mutable_capsule() = NextPart(&capsule);
    return true;
  }
  return false;
}

v1::CapsulePart Directives::NextPart(Capsule* capsule) {
  const std::string& bytes = capsule->bytes;
  const uint64_t size = std::min(kPartBytes, bytes.size() - capsule->sent);
  v1::CapsulePart part;
  part.set_capsule(capsule->id);
  part.set_step(capsule->step);
  part.set_offset(capsule->sent);
  part.set_total(bytes.size());
  part.set_data(bytes.substr(capsule->sent, size));
  part.set_crc32c(Crc32c(part.data().data(), part.data().size()));
  capsule->sent += size;
  part.set_last(capsule->sent == bytes.size());
  if (part.last()) part.set_sha256(capsule->sha256);
  return part;
}

// ---- capsules ------------------------------------------------------------------------------

// Returns the sites of one name, of any kind.
std::vector<Site*> Directives::SitesNamed(const v1::Site& name) const {
  std::vector<Site*> named;
  for (size_t i = 0, n = run_->sites.size(); i < n; ++i) {
    Site* site = run_->sites.at(i);
    if (Means(name, *site)) named.push_back(site);
  }
  return named;
}

// Sends the reason for a missing capsule as a part without data. With the trainer's step the server
// can choose a later step.
void Directives::Refuse(uint64_t id, int64_t step, std::string why) {
  if (answers_.size() == kMostAnswers) answers_.pop_front();
  v1::CapsulePart& part = *answers_.emplace_back().mutable_capsule();
  part.set_capsule(id);
  part.set_step(step);
  part.set_error(std::move(why));
  part.set_newest_step(run_->newest_step.load(std::memory_order_relaxed));
}

// Ends the sampling of the capsule's sites.
void Directives::Drop(std::list<Capsule>::iterator capsule) {
  for (Site* site : capsule->sites) {
    if (site->orders.capsule_step() == capsule->step) site->orders.TakeAt(SiteOrders::kNever);
  }
  capsules_.erase(capsule);
}

// Handles a request for a capsule. The step must be ahead, so that every rank takes the same one.
// The capsule is prepared here, filled by Took during the step, closed by StepEnded, and sent by
// Next.
void Directives::Send(const v1::SendCapsule& order) {
  const auto known = std::find_if(capsules_.begin(), capsules_.end(),
                                  [&](const Capsule& c) { return c.id == order.capsule(); });
  if (known != capsules_.end()) {
    // A repeated request after a break: continues at the first byte that the server lacks.
    if (!order.release() && known->step == order.step()) {
      known->requested = true;
      known->sent = std::min<uint64_t>(order.offset(), known->bytes.size());
      return;
    }
    Drop(known);
  }
  if (order.release()) return;
  if (finished_)
    return Refuse(order.capsule(), order.step(), "run-ended: the run has ended in this process");
  if (capsules_.size() == kMostCapsules) {
    // If the server did not request a capsule again after a break, its release was lost with the
    // connection.
    const auto left = std::find_if(capsules_.begin(), capsules_.end(),
                                   [](const Capsule& c) { return c.taken && !c.requested; });
    if (left != capsules_.end()) Drop(left);
  }
  if (capsules_.size() == kMostCapsules) {
    return Refuse(order.capsule(), order.step(),
                  "busy: this process holds " + Text(kMostCapsules) + " capsules already");
  }
  Capsule capsule;
  capsule.id = order.capsule();
  capsule.name = order.site();
  capsule.step = order.step();
  capsule.max_bytes = std::min(order.max_bytes(), kMostBytes);
  capsule.requested = true;
  capsule.sites = SitesNamed(order.site());
  if (capsule.sites.empty()) {
    return Refuse(order.capsule(), order.step(), "no-site: this process has no such site");
  }
  const int64_t newest = run_->newest_step.load(std::memory_order_relaxed);
  if (order.step() < newest + kAhead) {
    return Refuse(order.capsule(), order.step(),
                  "passed-step: the trainer is in step " + std::to_string(newest) + " already");
  }
  // A site samples for one step: the newest request replaces others.
  for (auto other = capsules_.begin(); other != capsules_.end();) {
    const auto at = other++;
    if (at->taken || at->sites != capsule.sites) continue;
    Refuse(at->id, at->step, "superseded: a newer capsule of this site was requested");
    Drop(at);
  }
  *capsule.batch.add_sources() = run_->source;
  for (Site* site : capsule.sites) site->orders.TakeAt(capsule.step);
  capsules_.push_back(std::move(capsule));
  // The trainer's thread may have passed the step meanwhile.
  const int64_t now = run_->newest_step.load(std::memory_order_relaxed);
  if (order.step() > now) return;
  Refuse(order.capsule(), order.step(),
         "passed-step: the trainer is in step " + std::to_string(now) + " already");
  Drop(std::prev(capsules_.end()));
}

// Keeps evidence of a capsule's step unchanged, up to the capsule's bytes. Further evidence is only
// counted, so that the refusal can state the size.
void Directives::Took(const Site& site, bool sampled, const v1::Evidence& evidence) {
  if (site.orders.capsule_step() != evidence.step()) return;
  const MutexLock lock(mutex_);
  for (Capsule& capsule : capsules_) {
    const auto& sites = capsule.sites;
    if (capsule.taken || capsule.step != evidence.step() ||
        std::find(sites.begin(), sites.end(), &site) == sites.end()) {
      continue;
    }
    if (!sampled) {
      capsule.unsampled = true;
      continue;
    }
    const uint64_t bytes = evidence.ByteSizeLong();
    capsule.taken_bytes += bytes;
    if (capsule.taken_bytes > capsule.max_bytes) continue;
    v1::Evidence& kept = *capsule.batch.add_evidence() = evidence;
    kept.set_source(0);
  }
}

void Directives::StepEnded(int64_t step) {
  const MutexLock lock(mutex_);
  for (auto capsule = capsules_.begin(); capsule != capsules_.end();) {
    const auto at = capsule++;
    if (at->taken || at->step > step) continue;
    Finish(&*at);
    if (!at->taken) Drop(at);
  }
}

// The step of a capsule is over: the evidence is complete, or there is a reason for none.
void Directives::Finish(Capsule* capsule) {
  if (!capsule->batch.evidence().empty() && !capsule->unsampled) return Seal(capsule);
  std::string why = "no-call: the site was not called in step " + std::to_string(capsule->step);
  if (capsule->taken_bytes > capsule->max_bytes) {
    why = "too-large: the calls of the step take " + Text(capsule->taken_bytes) +
          " bytes; the limit is " + Text(capsule->max_bytes);
  } else if (capsule->unsampled) {
    why = "passed-step: step " + std::to_string(capsule->step) + " had already begun";
  }
  Refuse(capsule->id, capsule->step, std::move(why));
}

// Fixes its bytes, so that lost parts can be sent again.
void Directives::Seal(Capsule* capsule) {
  capsule->taken = true;
  capsule->bytes = capsule->batch.SerializeAsString();
  capsule->sha256 = Sha256Of(capsule->bytes);
  capsule->batch.Clear();
  for (Site* site : capsule->sites) {
    if (site->orders.capsule_step() == capsule->step) site->orders.TakeAt(SiteOrders::kNever);
  }
}

void Directives::Finished() {
  const MutexLock lock(mutex_);
  finished_ = true;
  for (auto capsule = capsules_.begin(); capsule != capsules_.end();) {
    const auto at = capsule++;
    if (at->taken) continue;
    Refuse(at->id, at->step, "run-ended: the run ended before step " + std::to_string(at->step));
    Drop(at);
  }
}

void Directives::ForgetAll() {
  capsules_.clear();
  for (size_t i = 0, n = run_->sites.size(); i < n; ++i) run_->sites.at(i)->orders.Forget();
}

// ---- denser sampling -----------------------------------------------------------------------

// Returns the bytes that may still be granted to requests: half of the run's traffic budget so far,
// and a little more for a new run, without those already granted.
uint64_t Directives::Allowance() const {
  constexpr uint64_t kAtFirst = 512;  // steps
  const auto newest = run_->newest_step.load(std::memory_order_relaxed);
  const uint64_t steps = kAtFirst + static_cast<uint64_t>(std::max<int64_t>(newest, 0)) / 2;
  const uint64_t allowed = steps * run_->options.traffic_bytes;
  return allowed > granted_bytes_ ? allowed - granted_bytes_ : 0;
}

void Directives::Sample(const v1::SampleSite& order) {
  if (answers_.size() == kMostAnswers) answers_.pop_front();
  v1::DirectiveReport& report = *answers_.emplace_back().mutable_report();
  *report.mutable_site() = order.site();
  report.set_asked_every(order.every());
  const std::vector<Site*> sites = SitesNamed(order.site());
  if (sites.empty()) return report.set_reason("no-site: this process has no such site");

  const int64_t newest = run_->newest_step.load(std::memory_order_relaxed);
  const int64_t from = newest + kAhead;
  const int64_t until = std::min(order.until_step(), from + kLongest);
  report.set_from_step(from);
  report.set_until_step(until);
  if (until < from) {
    return report.set_reason("passed-step: the trainer is in step " + std::to_string(newest));
  }
  uint64_t bytes = 0;
  for (const Site* site : sites) bytes += site->most_sample_bytes();
  // Thins out until the request fits into the budget. Powers of two, like all periods: ranks with
  // different factors still meet.
  const uint64_t requested = std::bit_ceil(std::max<uint64_t>(order.every(), 1));
  const auto steps = static_cast<uint64_t>(until - from + 1);
  const uint64_t allowed = Allowance();
  uint64_t every = requested;
  while (every <= steps && bytes * (steps / every) > allowed) every *= 2;
  const uint64_t stretch = run_->cadence.stretch();
  if (every > requested) {
    report.set_reason("budget: the site's calls keep " + Text(bytes) +
                      " bytes per step; the limit for denser sampling is " + Text(allowed) +
                      " more");
  } else if (stretch > 1) {
    report.set_reason("budget: the agent already uses its share of the trainer's time");
  }
  if (every > steps) return;
  granted_bytes_ += bytes * (steps / every);
  report.set_every(every * stretch);
  for (Site* site : sites) site->orders.Sample(from, until, static_cast<int64_t>(every));
}

}  // namespace plumbline::agent
