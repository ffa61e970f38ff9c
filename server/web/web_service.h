// The page of plumbd: its files, and the requests under /api/v1.
//
// Access is as in the query service: a run for which a caller has no scope is treated as missing.
// The files themselves hold no private data and are public.
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

// Counts the listening pages of each access entry, so that none uses up all places. Thread-safe.
class Listeners {
 public:
  static constexpr size_t kMost = 32;  // per entry

  // Takes a place until it is released; returns nullptr if there are kMost.
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
  // Returns the public paths.
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
