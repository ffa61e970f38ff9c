// The options that the routing rules share: how much evidence is a proof, and how much a hint.
#pragma once

#include "analysis/frame/frame.h"

namespace plumbline::rules {

// What the options default to, where a judgement has none.
inline constexpr double kProofBits = 20;
inline constexpr double kHintBits = 7;
// Of a draw among all against refusals of the tokens' own, beside a hint's bits of pairs. Refusals
// of their own seldom leave such pairs at all, so both together are rarer than either.
inline constexpr double kDrawnBits = 4;
// Of pairs, where the configuration itself names a policy that leaves such pairs.
inline constexpr double kNamedBits = 2;
// Own thresholds beside a declared capacity would have to hit it by luck, all of them: 1 in 1,000.
inline constexpr double kLuckBits = 10;

inline constexpr OptionInfo kRoutingOptions[] = {
    {.name = "proof-bits",
     .type = OptionInfo::Type::kNumber,
     .unit = "bits",
     .default_value = "20",
     .reason =
         "2^-20 is one false proof in a million calls, if every call were an innocent look-alike",
     .low = 20,
     .high = 1000},
    {.name = "hint-bits",
     .type = OptionInfo::Type::kNumber,
     .unit = "bits",
     .default_value = "7",
     .reason = "below 1 in 128 a coincidence is not worth a person's time",
     .low = 7,
     .high = 1000},
};

}  // namespace plumbline::rules
