// How many names of runs each sender may use, so that one that makes up names without end does not
// shut new runs of others out. `most` names are there for all. Beyond them a quarter more is kept
// for addresses, and a quarter for processes behind relays: each gets one while it has fewer of
// them than are left. So one sender without end leaves half of them to the others, k leave 2^-k.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/stream/sender.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// Not thread-safe.
class RunShares {
 public:
  RunShares(size_t most, Shares shares) : most_(most), shares_(std::move(shares)) {}

  // Counts one more name as the sender's, of `known` names so far. `known_before`: the name is one
  // of them, and no sender's yet. ResourceExhausted: one too many, of all or of the sender's.
  absl::Status Take(const Sender& sender, size_t known, bool known_before);

 private:
  // Names beyond `most_`, and how many of them each sender has.
  struct Reserve {
    size_t left = 0;
    std::map<std::string, size_t> taken;
    bool Take(const std::string& sender);
  };
  bool TakeOfReserves(const Sender& sender);
  absl::Status Full(const Sender& sender) const;

  const size_t most_;
  const Shares shares_;
  const size_t reserve_ = most_ < 8 ? 0 : most_ / 4;  // of a single one a sender would take all
  Reserve of_addresses_{reserve_, {}}, of_processes_{reserve_, {}};
  std::map<std::string, size_t> by_entries_;  // names of each access entry, of all
};

}  // namespace plumbline::server
