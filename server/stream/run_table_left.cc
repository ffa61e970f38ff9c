// Runs without a connected process, in the order in which a server that knows too many runs forgets
// them.

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "server/stream/run_table.h"

namespace plumbline::server {
namespace {

bool LessEvidence(const RunTable::Left& a, const RunTable::Left& b) {
  return std::tie(a.evidence, a.seen_unix_ns) < std::tie(b.evidence, b.seen_unix_ns);
}

}  // namespace

bool RunTable::AnyConnected(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const auto& rank) { return rank.second.connected; });
}

std::vector<RunTable::Left> RunTable::ListLeft(bool ended) const {
  std::vector<Left> list;
  for (const auto& [name, run] : runs_) {
    if (run.ended != ended || AnyConnected(run)) continue;
    list.push_back({name, run.info.evidence(), run.info.last_seen_unix_ns()});
  }
  return list;
}

std::vector<RunTable::Left> RunTable::Disconnected() const {
  std::vector<Left> list = ListLeft(false);
  std::sort(list.begin(), list.end(), LessEvidence);
  return list;
}

std::vector<RunTable::Left> RunTable::Over(size_t young) const {
  std::vector<Left> list = ListLeft(true);
  std::sort(list.begin(), list.end(),
            [](const Left& a, const Left& b) { return a.seen_unix_ns < b.seen_unix_ns; });
  std::sort(list.begin(), list.end() - static_cast<ptrdiff_t>(std::min(young, list.size())),
            LessEvidence);
  return list;
}

std::vector<KnownRank> RunTable::RanksOf(const std::string& run,
                                         std::map<int, uint32_t>* worlds) const {
  std::vector<KnownRank> list;
  const auto found = runs_.find(run);
  if (found == runs_.end()) return list;
  for (const auto& [key, rank] : found->second.ranks)
    list.push_back({rank.stream_id, rank.source, rank.through, rank.over(), rank.connected, false});
  for (const auto& [id, role] : found->second.roles) (*worlds)[id] = role.world;
  return list;
}

}  // namespace plumbline::server
