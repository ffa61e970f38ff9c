// How many names of runs each sender may use at a time, so that one that makes up names without end
// does not shut new runs of others out. `most` names are there for all. Beyond them half of `most`
// is kept for addresses, and half for processes behind relays, whose connections are open: an
// address, or a process's address, gets a name while it has fewer of them than are left, and a
// connection gets a few. Such a name is free again when its connection is closed.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/ingest/name_counts.h"
#include "server/stream/sender.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// Not thread-safe.
class RunShares {
 public:
  static constexpr size_t kOfConnection = 8;  // a hello names as many runs
  static constexpr size_t kOfRelay = 256;     // of a relay's connection, for all of its processes

  RunShares(size_t most, Shares shares) : most_(most), shares_(std::move(shares)) {}

  // What a name takes. Empty: nothing.
  struct Place {
    bool counted = false;  // as one of the entries'
    std::string entries;
    // Of the names that are kept for open connections. Empty: none.
    std::string address, process, connection, line;
  };

  // Counts one more name as the sender's, of `known` names now. `known_before`: the name is one of
  // them, and no sender's yet. ResourceExhausted: one too many, of all or of the sender's; *place
  // is unchanged.
  absl::Status Take(const Sender& sender, size_t known, bool known_before, Place* place);
  // No connection names it any more.
  void Disconnected(Place* place);
  // The name is forgotten.
  void Give(Place* place);

 private:
  // Names beyond `most_`, and how many of them each sender has.
  struct Reserve {
    size_t left = 0;
    NameCounts taken;
    bool Take(const std::string& sender);
    void Give(std::string* sender);
  };
  bool TakeOfReserves(const Sender& sender, Place* place);
  absl::Status Full(const Sender& sender) const;

  const size_t most_;
  const Shares shares_;
  const size_t reserve_ = most_ < 8 ? 0 : most_ / 2;  // of a single one a sender would take all
  Reserve of_addresses_{reserve_, {}}, of_processes_{reserve_, {}};
  NameCounts of_connections_, of_lines_;
  NameCounts of_addresses_by_;  // places of addresses, by connection
  NameCounts by_entries_;       // names of each access entry, of all
};

}  // namespace plumbline::server
