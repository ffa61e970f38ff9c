// Requests of the server to this process: denser sampling of a site for some time, and capsules,
// which are the calls of one site at one step, the same on every rank.
//
// Directives arrive and parts are sent on the stream thread; evidence comes from the drain thread.
// Capsules stay in memory until the server releases them, so a broken connection loses only what
// was in flight: the server requests the rest again. The cost for the trainer stays within the
// budget: a capsule is one sampled step, at most kMostCapsules are held, and denser sampling is
// thinned out until the site's bytes fit into half of the traffic budget so far and the governor
// agrees.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/run/run_state.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "transport/connection.h"

namespace plumbline::agent {

// Thread-safe.
class Directives : public transport::SideChannel {
 public:
  static constexpr size_t kMostCapsules = 4;
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // of one capsule
  static constexpr uint64_t kPartBytes = uint64_t{256} << 10;
  // A requested step must be this far ahead, so that it cannot have begun unnoticed.
  static constexpr int64_t kAhead = 2;
  static constexpr int64_t kLongest = 4096;  // steps of denser sampling

  explicit Directives(std::shared_ptr<RunState> run) : run_(std::move(run)) {}

  // Called by the stream thread.
  void OnWelcome() override;
  void OnDirective(const v1::Directive& directive) override;
  bool Next(v1::AgentMessage* message) override;

  // Called by the drain thread with one item of evidence that goes into a batch; `sampled` states
  // whether its call had to keep elements. Call it for every item of a step before the step ends.
  // Costs one compare if there are no requests.
  void Took(const Site& site, bool sampled, const v1::Evidence& evidence);
  void StepEnded(int64_t step);
  void Finished();

 private:
  struct Capsule {
    uint64_t id = 0;
    v1::Site name;
    std::vector<Site*> sites;
    int64_t step = 0;
    uint64_t max_bytes = 0;
    bool taken = false;      // `bytes` are final
    bool requested = false;  // requested on the current stream
    bool unsampled = false;  // a call came before the request did
    uint64_t taken_bytes = 0;
    v1::Batch batch;
    std::string bytes, sha256;
    uint64_t sent = 0;
  };

  void Send(const v1::SendCapsule& order) PLUMB_REQUIRES(mutex_);
  void Sample(const v1::SampleSite& order) PLUMB_REQUIRES(mutex_);
  uint64_t Allowance() const PLUMB_REQUIRES(mutex_);
  void ForgetAll() PLUMB_REQUIRES(mutex_);
  std::vector<Site*> SitesNamed(const v1::Site& name) const;
  void Refuse(uint64_t id, int64_t step, std::string why) PLUMB_REQUIRES(mutex_);
  void Finish(Capsule* capsule) PLUMB_REQUIRES(mutex_);
  void Drop(std::list<Capsule>::iterator capsule) PLUMB_REQUIRES(mutex_);
  static void Seal(Capsule* capsule);
  static v1::CapsulePart NextPart(Capsule* capsule);

  const std::shared_ptr<RunState> run_;
  Mutex mutex_;
  std::list<Capsule> capsules_ PLUMB_GUARDED_BY(mutex_);
  std::deque<v1::AgentMessage> answers_ PLUMB_GUARDED_BY(mutex_);  // refusals and reports
  uint64_t granted_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;            // for denser sampling, so far
  bool finished_ PLUMB_GUARDED_BY(mutex_) = false;
};

}  // namespace plumbline::agent
