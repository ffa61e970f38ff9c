// The page of plumbd: its files, and what they ask for under /api/v1.
//
// Who may see what is as in the query service: a run that somebody has no scope over is not there.
// The files themselves hold nothing of anybody and are given to whoever asks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/http/web.h"
#include "server/web/event_ids.h"
#include "server/web/views.h"
#include "server/web/web_events.h"

namespace plumbline::server {

// How many pages listen under each access entry, so that none keeps the others from listening.
// Thread-safe.
class Listeners {
 public:
  static constexpr size_t kMost = 32;  // of one entry

  // Counts until it is let go; nullptr: there are kMost.
  std::shared_ptr<void> Enter(const std::string& entry);

 private:
  struct Counts {
    Mutex mutex;
    std::map<std::string, size_t> of PLUMB_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

// Thread-safe.
class WebService {
 public:
  explicit WebService(WebSources sources)
      : views_(std::move(sources)), runs_(views_.sources().query.judge) {}

  WebAnswer Answer(const WebRequest& request);
  // Paths that anybody may have.
  static std::vector<std::string> Files();

 private:
  WebAnswer Api(const WebRequest& request);
  WebAnswer OfRun(const Lease& lease, const WebRequest& request,
                  const std::vector<std::string>& parts) const;
  WebAnswer OfIncident(const Lease& lease, const WebRequest& request,
                       const std::vector<std::string>& parts) const;

  const WebViews views_;
  RunSnapshot runs_;
  const EventIds event_ids_;
  Listeners listeners_;
};

}  // namespace plumbline::server
