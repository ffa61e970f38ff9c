// The findings of saved_weights.h, in words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/weights/saved_weights.h"

namespace plumbline::analysis {

enum class ReturnKind {
  kPart,   // other tensors of the checkpoint are new
  kFile,   // the content states an earlier step, too
  kWhole,  // all weights returned: a trainer may restore its best ones
};
enum class Replacement { kZero, kTransposed, kSwapped, kOther, kNegated, kDrawnAnew };

v1::Verdict ContentFound(int64_t step, double content, const std::string& file, uint32_t rank);
v1::Verdict ReturnFound(ReturnKind kind, int64_t step, int64_t back,
                        const std::vector<const SavedPair*>& tensors, uint32_t rank);
v1::Verdict StandstillFound(int64_t step, int64_t before, uint32_t rank);
// `parted`: the rank went on from the copied values, apart from the other rank.
v1::Verdict CopyFound(const CopiedRank& copied, uint32_t rank, bool parted);
v1::Verdict AdapterFound(bool zero, int64_t first, int64_t step,
                         const std::vector<const SavedPair*>& tensors, uint32_t rank);
v1::Verdict EmptyFound(int64_t step, const std::vector<const SavedPair*>& tensors, size_t weights,
                       uint32_t rank);
v1::Verdict MomentsFound(int64_t step, int64_t before, const SavedPair& tensor, uint32_t rank);
v1::Verdict ReplacedFound(Replacement how, int64_t before, int64_t step, const SavedPair& tensor,
                          double correlation, const SavedPair* other, uint32_t rank,
                          bool trained_on);
v1::Verdict GrowthFound(int64_t step, const SavedPair& tensor, double rate, uint32_t rank);

}  // namespace plumbline::analysis
