// The options that the routing rules share: the evidence needed for a proof and for a hint.
#pragma once

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// Defaults of the options, for a judgement without them.
inline constexpr double kProofBits = 20;
inline constexpr double kHintBits = 7;
// Bits for a draw among all candidates against a token's own refusals, in addition to a hint's bits
// of pairs. Own refusals seldom leave such pairs, so both together are less likely than one of
// them.
inline constexpr double kDrawnBits = 4;
// Bits of pairs, if the configuration itself names a policy that leaves such pairs.
inline constexpr double kNamedBits = 2;
// With a declared capacity, all own thresholds would have to match it by chance: 1 in 1,000.
inline constexpr double kLuckBits = 10;

inline constexpr OptionInfo kRoutingOptions[] = {
    {.name = "proof-bits",
     .type = OptionInfo::Type::kNumber,
     .unit = "bits",
     .default_value = "20",
     .reason = "2^-20 is one false proof in a million calls, if every call has an innocent cause "
               "with the same pattern",
     .low = 20,
     .high = 1000},
    {.name = "hint-bits",
     .type = OptionInfo::Type::kNumber,
     .unit = "bits",
     .default_value = "7",
     .reason = "below 1 in 128 a coincidence is rare enough to report",
     .low = 7,
     .high = 1000},
};

}  // namespace plumbline::analysis
