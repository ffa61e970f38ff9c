// The digest of a tile: the words of a tensor with their keys. Host and device.
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/tensor/digest.h"

namespace plumbline {

class TileDigest {
 public:
  PLUMB_DEVICE explicit TileDigest(const DigestTable* table) : table_(table) {}

  // Sets the digest's block to that of byte `at` of the tensor, for the words that follow.
  PLUMB_DEVICE void Enter(int64_t at) {
    const int64_t block = at / kDigestBlockBytes;
    if (block == block_) return;
    block_ = block;
    key_ = DigestBlockKey(static_cast<uint64_t>(block));
  }
  PLUMB_DEVICE void Add(uint64_t word, int64_t index, Digest* digest) const {
    const auto place = static_cast<uint64_t>(index) % kDigestBlockWords;
    digest->low += DigestWord(word, table_->low[place] ^ key_.low);
    digest->high += DigestWord(word, table_->high[place] ^ key_.high);
  }

 private:
  const DigestTable* table_;
  int64_t block_ = -1;
  DigestKey key_{};
};

}  // namespace plumbline
