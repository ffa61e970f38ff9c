// Sealed batches: their bytes, and how parts are removed if a batch cannot be kept whole.
//
// A batch that loses evidence keeps its place, its progress and its declarations, and its list of
// losses counts the lost items. So for each version of a batch that a server may store, the
// received items and the reported losses add up to the produced items.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::transport {

inline constexpr int64_t kNoStep = std::numeric_limits<int64_t>::max();

using SeriesSets = std::vector<v1::SeriesSet>;

// A v1::Batch without stream_id and sequence, which depend on its destination.
struct SealedBatch {
  std::shared_ptr<const std::string> body;
  uint64_t items = 0;            // evidence and scalars in it
  uint64_t samples = 0;          // items with raw rows
  uint64_t sets = 0;             // series sets that it declares
  bool progress = false;         // true if it reports the source's progress
  int64_t first_step = kNoStep;  // the lowest step in it
  bool hollow() const { return items == 0; }
};

SealedBatch Seal(const v1::Batch& batch);
v1::Batch Parsed(const SealedBatch& sealed);

// Returns the two fields that Seal left out, as bytes to append to a body.
std::string BatchNumber(uint64_t stream_id, uint64_t sequence);

// Removes all raw rows, states this in each summary, and counts them by site in losses of `cause`.
void DropSamples(v1::Batch* batch, std::string_view cause);

// Removes all evidence and scalars, and counts them by site in losses of `cause`. `known` are the
// sets that were declared before. Rows of a set that is neither known nor declared in the batch are
// counted without names.
void DropEvidence(v1::Batch* batch, std::string_view cause, const SeriesSets& known);

// Sums the losses of a batch by cause, without their sites, and removes its declarations. The
// remaining batch has no names for which a server might have no space. Returns false if nothing
// changed.
bool DropNames(v1::Batch* batch);

// Merges a batch without evidence into an older one: sums losses of one cause and site, replaces
// progress by the newer one, keeps declarations.
void MergeHollow(const v1::Batch& newer, v1::Batch* older);

// The same operations on sealed batches.
SealedBatch WithoutSamples(const SealedBatch& batch, std::string_view cause);
SealedBatch WithoutEvidence(const SealedBatch& batch, std::string_view cause,
                            const SeriesSets& known);
SealedBatch Merged(const SealedBatch& older, const SealedBatch& newer);

// Adds `count` to the loss of that cause and site, and widens its range of steps. If `site` is
// nullptr, the loss has no site.
void AddLoss(v1::Batch* batch, std::string_view cause, const v1::Site* site, uint64_t count,
             int64_t step_first, int64_t step_last);

}  // namespace plumbline::transport
