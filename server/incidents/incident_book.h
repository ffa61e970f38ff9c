// Incidents: findings of one fingerprint, merged; and their changes, in order, for watchers.
//
// A watcher keeps a cursor into the order of changes instead of a queue. An incident that changes
// again before a watcher has read it moves to the end, so what a slow watcher costs is bounded by
// the number of incidents, and it always gets the newest state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::server {

struct IncidentFilter {
  std::string run;        // empty: all
  std::string rule_glob;  // empty: all
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;

  bool Matches(const v1::Finding& finding) const;
};

// Thread-safe.
class IncidentBook {
 public:
  struct Change {
    v1::Incident incident;
    uint64_t opened_at = 0;  // position of the incident's first change
    uint64_t revision = 0;   // changes of this incident so far, this one included
  };

  // `on_change` runs after each change, on the changing thread; it must be quick.
  explicit IncidentBook(std::function<int64_t()> unix_ns) : unix_ns_(std::move(unix_ns)) {}
  void SetOnChange(std::function<void()> on_change);

  // The merged finding of its fingerprint, of `count` verdicts so far.
  void Put(const v1::Finding& finding, uint64_t count);

  // Position of the newest change; 0 before the first.
  uint64_t position() const;

  // The first change after `*cursor` that passes the filter; moves the cursor there, or, without
  // one, to the end.
  bool Next(const IncidentFilter& filter, uint64_t* cursor, Change* out) const;

  std::vector<v1::Incident> List(const IncidentFilter& filter) const;
  uint64_t OpenIn(const std::string& run) const;

 private:
  struct Entry {
    v1::Incident incident;
    uint64_t opened_at = 0;
    uint64_t changed_at = 0;
    uint64_t revision = 0;
  };

  const std::function<int64_t()> unix_ns_;
  mutable std::mutex mutex_;
  std::function<void()> on_change_;
  uint64_t position_ = 0;
  std::unordered_map<std::string, Entry> by_fingerprint_;
  std::map<uint64_t, const Entry*> by_change_;  // nodes of an unordered_map do not move
  std::unordered_map<std::string, uint64_t> open_by_run_;
};

}  // namespace plumbline::server
