// The words that columns of a rollout record may hold, and their values in evidence.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

struct RolloutWord {
  std::string_view text;
  int value;
};

inline constexpr RolloutWord kLogprobModes[] = {{"raw_logprobs", v1::LOGPROB_MODE_RAW},
                                                {"processed_logprobs", v1::LOGPROB_MODE_PROCESSED}};
inline constexpr RolloutWord kSelections[] = {
    {"all", v1::LogprobsSequence::SELECTION_ALL},
    {"filtered", v1::LogprobsSequence::SELECTION_FILTERED}};
inline constexpr RolloutWord kRolloutSources[] = {
    {"sampled", v1::LogprobsSequence::SOURCE_SAMPLED},
    {"rescored", v1::LogprobsSequence::SOURCE_RESCORED}};

inline const RolloutWord* FindWord(std::span<const RolloutWord> words, std::string_view text) {
  const auto found = std::find_if(words.begin(), words.end(),
                                  [&](const RolloutWord& w) { return w.text == text; });
  return found == words.end() ? nullptr : &*found;
}

}  // namespace plumbline::audit
