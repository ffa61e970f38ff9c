#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/weights/saved_findings.h"
#include "analysis/weights/saved_weights.h"

namespace plumbline::analysis {

// Finds ranks whose matrices are those of another rank, although they differed before.
void SavedWeights::JudgeCopies(const StepEnd& step, std::vector<SavedRank>& ranks) {
  std::map<std::vector<Digest>, const SavedRank*> seen;
  for (const SavedRank& rank : ranks) {
    std::vector<Digest> digests;
    for (const SavedPair& pair : rank.tensors) {
      if (pair.weight() && pair.look->matrix && pair.look->comparable())
        digests.push_back(pair.look->digest);
    }
    if (digests.size() < 2) continue;
    const auto [at, is_new] = seen.try_emplace(std::move(digests), &rank);
    if (is_new) continue;
    const SavedRank& other = *at->second;
    size_t pairs = 0, apart = 0;
    double own = 0, others = 0;
    for (const SavedPair& pair : rank.tensors) {
      const SavedPair* twin = other.Find(pair.layer, pair.op);
      if (!pair.weight() || !pair.look->matrix || twin == nullptr) continue;
      if (pair.change == SavedPair::Change::kFirst ||
          pair.past->last.size() != twin->past->last.size())
        continue;
      ++pairs;
      // Shards are unrelated. Copies that had drifted apart are not.
      apart += std::fabs(CorrelationOf(pair.past->last, twin->past->last)) < 0.5 ? 1 : 0;
      own += CorrelationOf(pair.past->last, pair.look->values);
      others += CorrelationOf(twin->past->last, pair.look->values);
    }
    if (pairs < 2 || apart != pairs) continue;
    const uint32_t copy = own < others ? rank.rank : other.rank;
    const uint32_t from = copy == rank.rank ? other.rank : rank.rank;
    SavedCourse& course = CourseOf(step, copy);
    course.copied = CopiedRank{step.step, course.step, from, pairs};
    for (const SavedPair& pair : (copy == rank.rank ? rank : other).tensors)
      if (pair.weight()) pair.past->older = pair.past->last;
  }
}

// Reports a rank that had another rank's matrices in the checkpoint before. If it went on from
// them, apart from the other, it took them on purpose.
void SavedWeights::JudgeCopied(const StepEnd& step, std::vector<SavedRank>& ranks,
                               VerdictSink& out) {
  for (SavedRank& rank : ranks) {
    const std::optional<CopiedRank> copied =
        std::exchange(CourseOf(step, rank.rank).copied, std::nullopt);
    if (!copied) continue;
    const auto other = std::find_if(ranks.begin(), ranks.end(), [&](const SavedRank& one) {
      return one.rank == copied->other;
    });
    double own = 0, taken = 0;
    bool parted = false;
    for (const SavedPair& pair : rank.tensors) {
      std::vector<float> older = std::exchange(pair.past->older, {});
      if (!pair.weight() || !pair.look->matrix) continue;
      own += CorrelationOf(older, pair.look->values);
      taken += CorrelationOf(pair.past->last, pair.look->values);
      const SavedPair* twin = other == ranks.end() ? nullptr : other->Find(pair.layer, pair.op);
      parted |= twin != nullptr && twin->look->digest != pair.look->digest;
    }
    Add(CopyFound(*copied, rank.rank, parted && taken > own), step, rank.rank, out);
  }
}

bool SavedWeights::ReportCopied(uint32_t rank, const SavedCourse& course, VerdictSink& out) {
  if (course.copied) out.Add(CopyFound(*course.copied, rank, false));
  return course.copied.has_value();
}

}  // namespace plumbline::analysis
