// Limits the part of the shared resources that one access entry may use, so that no tenant can use
// up all streams, ranks and runs.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "server/settings/config.h"

namespace plumbline::server {

// Immutable.
class Shares {
 public:
  Shares() = default;  // every owner may use all
  explicit Shares(const Config& config);

  // Returns the share of `owner`, the caller's entries as in Lease::Names; the largest of their
  // shares counts. Empty: no access control.
  double Of(const std::string& owner) const;
  size_t Part(const std::string& owner, size_t all) const;
  // Returns the message "the access entry a has all of its share, 50 of the 100 streams
  // (ingest.max_streams)".
  std::string Full(const std::string& owner, size_t all, const char* what, const char* key) const;

 private:
  std::map<std::string, double> entries_;
};

}  // namespace plumbline::server
