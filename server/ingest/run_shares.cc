#include "server/ingest/run_shares.h"

#include "absl/strings/str_cat.h"

namespace plumbline::server {

bool RunShares::Reserve::Take(const std::string& sender) {
  const auto found = taken.find(sender);
  if ((found == taken.end() ? 0 : found->second) >= left) return false;
  --left;
  ++taken[sender];
  return true;
}

absl::Status RunShares::Take(const Sender& sender, size_t known, bool known_before) {
  const size_t part = shares_.Part(sender.entries, most_);
  size_t& of_entries = by_entries_[sender.entries];
  if (part < most_ && of_entries >= part) {
    return absl::ResourceExhaustedError(
        shares_.Full(sender.entries, most_, "runs", "ingest.max_runs"));
  }
  const size_t beyond = 2 * reserve_ - of_addresses_.left - of_processes_.left;
  if (!known_before && known >= most_ + beyond && !TakeOfReserves(sender)) return Full(sender);
  ++of_entries;
  return absl::OkStatus();
}

bool RunShares::TakeOfReserves(const Sender& sender) {
  if (sender.address.empty()) return false;
  if (of_addresses_.Take(sender.address)) return true;
  return !sender.behind.empty() &&
         of_processes_.Take(absl::StrCat(sender.address, " ", sender.behind));
}

absl::Status RunShares::Full(const Sender& sender) const {
  const auto found = of_addresses_.taken.find(sender.address);
  return absl::ResourceExhaustedError(
      absl::StrCat("this server already knows ", most_, " runs (ingest.max_runs); of ", reserve_,
                   " more, kept for new runs of each address, ", of_addresses_.left,
                   " are left and ", sender.address.empty() ? "this sender" : sender.address,
                   " has ", found == of_addresses_.taken.end() ? 0 : found->second));
}

}  // namespace plumbline::server
