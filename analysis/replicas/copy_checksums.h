// Copies of all weights that ranks must agree on, told as one number a step: the series
// "weights_checksum" (of a process group "weights_checksum.GROUP"), which run.watch sends. It says
// in which step copies parted; which tensor it is tells the digest of one that is looked at later.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// Not thread-safe.
class CopyChecksums {
 public:
  static bool Is(const v1::Site& site);

  // One step of such a series. A finding at the first step of a divergence and when other ranks
  // join it; a pass where all agree, now and then; nothing for one rank alone, or numbers that are
  // none.
  std::optional<v1::Verdict> Judge(const SiteStep& step);

  // A tensor was found to differ on these ranks: the findings that stand for the same divergence,
  // with its cause. `tensor`: "layer/op".
  std::vector<v1::Verdict> Explained(const SiteStep& step, const std::set<uint32_t>& odd,
                                     const std::string& tensor, const v1::Cause& cause);

  void Persist(Archive& archive) { archive(series_); }

 private:
  struct Series {
    std::optional<int64_t> agreed;  // the last step in which all did
    std::optional<int64_t> parted;  // the first since then in which they did not
    std::set<uint32_t> odd;         // of the divergence that was told
    uint64_t agreements = 0;
    uint64_t ranks = 0, majority = 0;
    bool explained = false;
    void Persist(Archive& a) { a(agreed, parted, odd, agreements, ranks, majority, explained); }
  };
  using Key = std::tuple<uint32_t, v1::Role, std::string>;  // attempt, role, op

  static v1::Verdict Found(const std::string& op, const Series& series, const std::string& more);

  std::map<Key, Series> series_;
};

}  // namespace plumbline::rules
