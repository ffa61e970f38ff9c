// Limits the names of runs that each sender may use at a time, so that a sender that invents names
// does not block new runs of others. `most` names are for all senders. In addition, half of `most`
// is reserved for addresses with open connections, and half for processes that connect through
// relays. An address, or the address of such a process, gets a reserved name while it has fewer of
// them than are left; a connection gets a few. The name is free again when its connection closes.
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
  static constexpr size_t kOfConnection = 8;  // largest number of runs in a hello
  static constexpr size_t kOfRelay = 256;     // of a relay's connection, for all of its processes

  RunShares(size_t most, Shares shares) : most_(most), shares_(std::move(shares)) {}

  // Records to which shares a name is charged. Empty: to none.
  struct Place {
    bool counted = false;  // as one of the entries'
    std::string entries;
    // Set if the name is one of those reserved for open connections.
    std::string address, process, connection, line;
  };

  // Counts one more name as the sender's; `known` names are known now. `known_before`: the name is
  // one of them and has no sender yet. Returns ResourceExhausted, with *place unchanged, if there
  // are too many names in all, or too many of the sender.
  absl::Status Take(const Sender& sender, size_t known, bool known_before, Place* place);
  // Frees a reserved name, when no connection names the run any more.
  void Disconnected(Place* place);
  // Removes the name from the count when it is forgotten.
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
  const size_t reserve_ = most_ < 8 ? 0 : most_ / 2;  // if only one place exists, one sender could
                                                      // take all
  Reserve of_addresses_{reserve_, {}}, of_processes_{reserve_, {}};
  NameCounts of_connections_, of_lines_;
  NameCounts of_addresses_by_;  // places of addresses, by connection
  NameCounts by_entries_;       // names of each access entry, of all
};

}  // namespace plumbline::server
