// Judges the checksum of all weights, of which ranks must hold equal copies: one number per step in
// the series "weights_checksum" (for a process group "weights_checksum.GROUP"), which run.watch
// sends. It shows in which step copies diverged. The digest of a tensor that is observed later
// shows which tensor diverged.
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

namespace plumbline::analysis {

// Not thread-safe.
class CopyChecksums {
 public:
  static bool Is(const v1::Site& site);

  // Judges one step of such a series. Returns a finding at the first step of a divergence and when
  // other ranks join it, and a pass from time to time if all agree. For a single rank, or for
  // non-finite values, returns nullopt.
  std::optional<v1::Verdict> Judge(const SiteStep& step);

  // Call if a tensor was found to differ on these ranks. Returns the findings of the same
  // divergence, with its cause. `tensor` is "layer/op".
  std::vector<v1::Verdict> Explained(const SiteStep& step, const std::set<uint32_t>& odd,
                                     const std::string& tensor, const v1::Cause& cause);

  void Persist(Archive& archive) { archive(series_); }

 private:
  struct Series {
    std::optional<int64_t> agreed;  // the last step in which all agreed
    std::optional<int64_t> parted;  // the first step since then in which they did not
    std::set<uint32_t> odd;         // of the reported divergence
    uint64_t agreements = 0;
    uint64_t ranks = 0, majority = 0;
    bool explained = false;
    void Persist(Archive& a) { a(agreed, parted, odd, agreements, ranks, majority, explained); }
  };
  using Key = std::tuple<uint32_t, v1::Role, std::string>;  // attempt, role, op

  static v1::Verdict Found(const std::string& op, const Series& series, const std::string& more);

  std::map<Key, Series> series_;
};

}  // namespace plumbline::analysis
