#include "server/ingest/run_shares.h"

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

size_t CountOf(const std::map<std::string, size_t>& counts, const std::string& of) {
  const auto found = counts.find(of);
  return found == counts.end() ? 0 : found->second;
}

// Clears the name.
void TakeAway(std::map<std::string, size_t>* counts, std::string* of) {
  const auto found = counts->find(*of);
  if (found != counts->end() && --found->second == 0) counts->erase(found);
  of->clear();
}

}  // namespace

bool RunShares::Reserve::Take(const std::string& sender) {
  if (CountOf(taken, sender) >= left) return false;
  --left;
  ++taken[sender];
  return true;
}

void RunShares::Reserve::Give(std::string* sender) {
  if (sender->empty()) return;
  ++left;
  TakeAway(&taken, sender);
}

absl::Status RunShares::Take(const Sender& sender, size_t known, bool known_before, Place* place) {
  const size_t part = shares_.Part(sender.entries, most_);
  if (part < most_ && CountOf(by_entries_, sender.entries) >= part) {
    return absl::ResourceExhaustedError(
        shares_.Full(sender.entries, most_, "runs", "ingest.max_runs"));
  }
  // Names of runs that are neither connected nor over have a bound as well: until the judge has
  // ended them, those that came by a connection of their own are more than all.
  const bool room = known < most_ + 2 * reserve_ + most_;
  if (!known_before && known >= most_ && !(room && TakeOfReserves(sender, place)))
    return Full(sender);
  ++by_entries_[sender.entries];
  place->counted = true;
  place->entries = sender.entries;
  return absl::OkStatus();
}

bool RunShares::TakeOfReserves(const Sender& sender, Place* place) {
  if (sender.address.empty()) return false;
  const std::string line =
      sender.line.empty() ? "" : absl::StrCat(sender.connection, " ", sender.line);
  const size_t of_connection = line.empty() ? kOfConnection : kOfRelay;
  if (CountOf(of_connections_, sender.connection) >= of_connection) return false;
  if (!line.empty() && CountOf(of_lines_, line) >= kOfConnection) return false;
  const std::string process =
      sender.behind.empty() ? "" : absl::StrCat(sender.address, " ", sender.behind);
  if (of_addresses_.Take(sender.address)) {
    place->address = sender.address;
  } else if (!process.empty() && of_processes_.Take(process)) {
    place->process = process;
  } else {
    return false;
  }
  ++of_connections_[place->connection = sender.connection];
  if (!line.empty()) ++of_lines_[place->line = line];
  return true;
}

void RunShares::Disconnected(Place* place) {
  if (place->address.empty() && place->process.empty()) return;
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
      CountOf(of_addresses_.taken, sender.address), " and this connection ",
      CountOf(of_connections_, sender.connection), "; try again later"));
}

}  // namespace plumbline::server
