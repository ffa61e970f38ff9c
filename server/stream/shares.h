// How much of what all senders share one access entry may use: no tenant can use up the streams,
// ranks and runs of all.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "server/settings/config.h"

namespace plumbline::server {

// Immutable.
class Shares {
 public:
  Shares() = default;  // everybody may use all
  explicit Shares(const Config& config);

  // `owner`: the entries of a caller, as Lease::Names says them; the largest of their shares
  // counts. Empty: nobody was asked.
  double Of(const std::string& owner) const;
  size_t Part(const std::string& owner, size_t all) const;
  // "the access entry a has all of its share, 50 of the 100 streams (ingest.max_streams)".
  std::string Full(const std::string& owner, size_t all, const char* what, const char* key) const;

 private:
  std::map<std::string, double> entries_;
};

}  // namespace plumbline::server
