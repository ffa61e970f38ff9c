// Generates evidence of a small router that certainly leaks future tokens. plumb doctor sends it to
// check that a finding comes back.
#pragma once

#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

inline constexpr const char* kDoctorRun = "plumb-doctor";
inline constexpr const char* kDoctorRule = "causality/moe-future-leak";

// Returns one finished step of one rank: 256 tokens in four sequences, 6 experts, top-1. In each
// sequence an expert keeps the 8 tokens with the highest scores, at any position, so a token can
// lose its place to a later token.
v1::Batch DoctorBatch(uint64_t stream_id);

}  // namespace plumbline::audit
