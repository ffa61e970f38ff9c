#include "server/ingest/run_shares.h"

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

// Clears the name.
void TakeAway(NameCounts* counts, std::string* of) {
  counts->Remove(*of);
  of->clear();
}

}  // namespace

bool RunShares::Reserve::Take(const std::string& sender) {
  if (taken.Of(sender) >= left) return false;
  --left;
  taken.Add(sender);
  return true;
}

void RunShares::Reserve::Give(std::string* sender) {
  if (sender->empty()) return;
  ++left;
  TakeAway(&taken, sender);
}

absl::Status RunShares::Take(const Sender& sender, size_t known, bool known_before, Place* place) {
  const size_t part = shares_.Part(sender.entries, most_);
  if (part < most_ && by_entries_.Of(sender.entries) >= part) {
    return absl::ResourceExhaustedError(
        shares_.Full(sender.entries, most_, "runs", "ingest.max_runs"));
  }
  // Also limits names of runs that are neither connected nor over: until the judge ends them, runs
  // with a separate connection could outnumber all others.
  const bool room = known < most_ + 2 * reserve_ + most_;
  if (!known_before && known >= most_ && !(room && TakeOfReserves(sender, place)))
    return Full(sender);
  by_entries_.Add(sender.entries);
  place->counted = true;
  place->entries = sender.entries;
  return absl::OkStatus();
}

bool RunShares::TakeOfReserves(const Sender& sender, Place* place) {
  if (sender.address.empty()) return false;
  const std::string line =
      sender.line.empty() ? "" : absl::StrCat(sender.connection, " ", sender.line);
  const size_t of_connection = line.empty() ? kOfConnection : kOfRelay;
  if (of_connections_.Of(sender.connection) >= of_connection) return false;
  if (!line.empty() && of_lines_.Of(line) >= kOfConnection) return false;
  // A relay may invent facts about its processes. So the places of its processes are taken first,
  // and its connection gets no more of the address's places than a direct connection.
  const std::string process =
      sender.after.empty() ? "" : absl::StrCat(sender.address, " ", sender.after);
  if (!process.empty() && of_processes_.Take(process)) {
    place->process = process;
  } else if (of_addresses_by_.Of(sender.connection) < kOfConnection &&
             of_addresses_.Take(sender.address)) {
    place->address = sender.address;
    of_addresses_by_.Add(sender.connection);
  } else {
    return false;
  }
  of_connections_.Add(place->connection = sender.connection);
  if (!line.empty()) of_lines_.Add(place->line = line);
  return true;
}

void RunShares::Disconnected(Place* place) {
  if (place->address.empty() && place->process.empty()) return;
  if (!place->address.empty()) of_addresses_by_.Remove(place->connection);
  of_addresses_.Give(&place->address);
  of_processes_.Give(&place->process);
  TakeAway(&of_connections_, &place->connection);
  TakeAway(&of_lines_, &place->line);
}

void RunShares::Give(Place* place) {
  Disconnected(place);
  if (std::exchange(place->counted, false)) TakeAway(&by_entries_, &place->entries);
}

absl::Status RunShares::Full(const Sender& sender) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "this server already knows ", most_, " runs (ingest.max_runs); of ", reserve_,
      " more, kept for new runs of each address that is connected, ", of_addresses_.left,
      " are left, ", sender.address.empty() ? "this sender" : sender.address, " has ",
      of_addresses_.taken.Of(sender.address), " and this connection ",
      of_connections_.Of(sender.connection), "; try again later"));
}

}  // namespace plumbline::server
