// Sealed batches: their bytes, and what is taken out of them when they cannot be kept whole.
//
// A batch that loses evidence keeps its place, its progress and its declarations, and carries the
// count of what it lost in its own losses. So whichever version of a batch a server stores, what it
// received and what it was told is missing add up to what was produced.
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

// A v1::Batch without stream_id and sequence, which differ by where it goes.
struct SealedBatch {
  std::shared_ptr<const std::string> body;
  uint64_t items = 0;            // evidence and scalars in it
  uint64_t samples = 0;          // of these with raw rows
  uint64_t sets = 0;             // series sets that it declares
  bool progress = false;         // it says how far the source has come
  int64_t first_step = kNoStep;  // the lowest that it speaks of
  bool hollow() const { return items == 0; }
};

SealedBatch Seal(const v1::Batch& batch);
v1::Batch Parsed(const SealedBatch& sealed);

// The two fields that Seal left out, as bytes to append to a body.
std::string BatchNumber(uint64_t stream_id, uint64_t sequence);

// Has the item raw rows or sampled elements?
bool HasSample(const v1::Evidence& evidence);

// Takes an item's raw rows out; its summary states the reason. False: it has none. Counts no loss.
bool RemoveSample(v1::Evidence* evidence, const std::string& reason);

// Takes the raw rows out; each summary says so, and a loss of `cause` counts them by site.
void DropSamples(v1::Batch* batch, std::string_view cause);

// Takes all evidence and scalars out; a loss of `cause` counts them by site. `known` are the
// sets that were declared before; of others that the batch does not declare itself the names are
// not known.
void DropEvidence(v1::Batch* batch, std::string_view cause, const SeriesSets& known);

// Sums the losses of a batch by cause, without their sites, and takes its declarations out. What is
// left names nothing that a server might have no space for. False: it was so already.
bool DropNames(v1::Batch* batch);

// Adds a batch without evidence to another one that is older: losses of one cause and site are
// summed, the newer progress replaces, declarations are kept.
void MergeHollow(const v1::Batch& newer, v1::Batch* older);

// The same for sealed ones.
SealedBatch WithoutSamples(const SealedBatch& batch, std::string_view cause);
SealedBatch WithoutEvidence(const SealedBatch& batch, std::string_view cause,
                            const SeriesSets& known);
SealedBatch Merged(const SealedBatch& older, const SealedBatch& newer);

// Adds `count` to the loss of that cause and site, widening its steps. `site` nullptr: no site's.
void AddLoss(v1::Batch* batch, std::string_view cause, const v1::Site* site, uint64_t count,
             int64_t step_first, int64_t step_last);

}  // namespace plumbline::transport
