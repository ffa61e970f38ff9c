// The evidence of a small router that leaks beyond doubt: what plumb doctor sends to see whether a
// finding comes back.
#pragma once

#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

inline constexpr const char* kDoctorRun = "plumb-doctor";
inline constexpr const char* kDoctorRule = "causality/moe-future-leak";

// One finished step of one rank: 128 tokens, 4 experts, top-1, capacity 40 that keeps the highest
// scores, whoever comes first. One expert overflows; a token in front loses to one behind it.
v1::Batch DoctorBatch(uint64_t stream_id);

}  // namespace plumbline::audit
