// Keeps the usable part of a batch that the engine refuses after its sender got an acknowledgement.
#pragma once

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules {

// The cause by which refused items are counted as lost.
inline constexpr char kRefusedLoss[] = "engine-refused";
// The cause by which steps of an earlier attempt are counted that a later attempt has repeated.
inline constexpr char kSupersededLoss[] = "superseded";

// Returns the sources, progress, declarations and losses of `batch`, without its evidence, rows and
// series sets. Adds one loss per source for the evidence items and values that are left out. An
// entry whose source index is out of range is left out.
v1::Batch WithoutRefused(const v1::Batch& batch);

}  // namespace plumbline::rules
