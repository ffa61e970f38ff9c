#include "server/store/tile.h"

#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "server/store/byte_shuffle.h"
#include "server/store/plane_codec.h"

namespace plumbline::server {
namespace {

constexpr uint8_t kPlanesVersion = 1;  // an older format: all in one zstd frame
constexpr uint8_t kVersion = 2;
constexpr uint8_t kScatteredSteps = 1;
constexpr uint8_t kHasAbsent = 2;
constexpr int kTileLevel = 1;
constexpr size_t kFrameBytes = 4;  // a frame is preceded by its size

struct TileHeader {
  uint8_t version;
  uint8_t flags;
  uint16_t steps;
  uint32_t crc;
  int64_t first_step;
  uint64_t ranks;
  TileStats stats;
};
static_assert(sizeof(TileHeader) == 56 && offsetof(TileHeader, first_step) == 8);

TileStats StatsOf(const Tile& tile) {
  TileStats stats;
  bool first = true;
  for (size_t i = 0; i < tile.values.size(); ++i) {
    if (tile.Absent(i)) continue;
    ++stats.present;
    const double value = tile.values[i];
    if (!std::isfinite(value)) {
      ++stats.non_finite;
      continue;
    }
    stats.sum += value;
    stats.min = first ? value : std::min(stats.min, value);
    stats.max = first ? value : std::max(stats.max, value);
    first = false;
  }
  return stats;
}

bool FollowEachOther(const std::vector<int64_t>& steps) {
  return steps.back() - steps.front() == static_cast<int64_t>(steps.size()) - 1;
}

// Returns the checksum of all bytes but its own.
uint32_t Checksum(const char* bytes, size_t size) {
  return Crc32c(bytes + 8, size - 8, Crc32c(bytes, 4));
}

absl::Status Damaged(const char* what) {
  return absl::DataLossError(absl::StrCat("a tile is damaged: ", what));
}

}  // namespace

struct TileEncoder::Scratch {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<uint8_t> plain;
  PlaneCodec planes;
  ~Scratch() { ZSTD_freeCCtx(context); }
};

TileEncoder::TileEncoder() : scratch_(std::make_unique<Scratch>()) {
  if (scratch_->context == nullptr) throw std::bad_alloc();
}
TileEncoder::~TileEncoder() = default;

TileStats TileEncoder::Encode(const Tile& tile, std::string* out) {
  const size_t steps = tile.steps.size();
  const size_t cells = tile.values.size();
  const bool scattered = !FollowEachOther(tile.steps);
  const size_t step_bytes = scattered ? 8 * steps : 0;
  const size_t absent_bytes = tile.absent.empty() ? 0 : (cells + 7) / 8;
  std::vector<uint8_t>& plain = scratch_->plain;
  plain.resize(step_bytes + absent_bytes);
  for (size_t i = 0; scattered && i < steps; ++i) {
    const int64_t offset = tile.steps[i] - tile.steps[0];
    std::memcpy(plain.data() + 8 * i, &offset, 8);
  }
  if (absent_bytes > 0) std::memcpy(plain.data() + step_bytes, tile.absent.data(), absent_bytes);

  TileHeader header{};
  header.version = kVersion;
  header.flags =
      static_cast<uint8_t>((scattered ? kScatteredSteps : 0) | (absent_bytes > 0 ? kHasAbsent : 0));
  header.steps = static_cast<uint16_t>(steps);
  header.first_step = tile.steps[0];
  header.ranks = tile.ranks;
  header.stats = StatsOf(tile);
  out->resize(sizeof(TileHeader));
  if (!plain.empty()) {
    constexpr size_t kBegin = sizeof(TileHeader) + kFrameBytes;
    out->resize(kBegin + ZSTD_compressBound(plain.size()));
    const size_t size =
        ZSTD_compressCCtx(scratch_->context, out->data() + kBegin, out->size() - kBegin,
                          plain.data(), plain.size(), kTileLevel);
    if (ZSTD_isError(size)) throw std::bad_alloc();  // the bound excludes all other errors
    out->resize(kBegin + size);
    const auto length = static_cast<uint32_t>(size);
    std::memcpy(out->data() + sizeof(TileHeader), &length, kFrameBytes);
  }
  scratch_->planes.Encode(tile.values, tile.columns(), out);
  std::memcpy(out->data(), &header, sizeof(TileHeader));
  header.crc = Checksum(out->data(), out->size());
  std::memcpy(out->data(), &header, sizeof(TileHeader));
  return header.stats;
}

struct TileDecoder::Scratch {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  std::vector<uint8_t> plain;
  PlaneCodec planes;
  ~Scratch() { ZSTD_freeDCtx(context); }
};

TileDecoder::TileDecoder() : scratch_(std::make_unique<Scratch>()) {
  if (scratch_->context == nullptr) throw std::bad_alloc();
}
TileDecoder::~TileDecoder() = default;

absl::Status TileDecoder::Decode(std::string_view bytes, Tile* tile) {
  TileHeader header;
  if (bytes.size() < sizeof(TileHeader)) return Damaged("it is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(TileHeader));
  if (header.version < kPlanesVersion || header.version > kVersion)
    return Damaged("its version is not known");
  if (Checksum(bytes.data(), bytes.size()) != header.crc) return Damaged("its checksum");
  const size_t steps = header.steps;
  const size_t cells = steps * static_cast<size_t>(__builtin_popcountll(header.ranks));
  if (steps == 0 || steps > kMaxTileSteps || cells == 0) return Damaged("it has no cells");
  const bool scattered = (header.flags & kScatteredSteps) != 0;
  const size_t step_bytes = scattered ? 8 * steps : 0;
  const size_t absent_bytes = (header.flags & kHasAbsent) != 0 ? (cells + 7) / 8 : 0;
  const bool old = header.version == kPlanesVersion;
  std::vector<uint8_t>& plain = scratch_->plain;
  plain.resize(step_bytes + absent_bytes + (old ? 8 * cells : 0));
  std::string_view rest = bytes.substr(sizeof(TileHeader));
  if (!plain.empty()) {
    auto length = static_cast<uint32_t>(rest.size());
    if (!old) {
      if (rest.size() < kFrameBytes) return Damaged("its length");
      std::memcpy(&length, rest.data(), kFrameBytes);
      rest.remove_prefix(kFrameBytes);
    }
    if (length > rest.size()) return Damaged("its length");
    const size_t size =
        ZSTD_decompressDCtx(scratch_->context, plain.data(), plain.size(), rest.data(), length);
    if (ZSTD_isError(size) || size != plain.size()) return Damaged("its length");
    rest.remove_prefix(length);
  }

  tile->ranks = header.ranks;
  tile->steps.resize(steps);
  for (size_t i = 0; i < steps; ++i) {
    int64_t offset = static_cast<int64_t>(i);
    if (scattered) std::memcpy(&offset, plain.data() + 8 * i, 8);
    tile->steps[i] = header.first_step + offset;
  }
  tile->absent.assign(absent_bytes > 0 ? (cells + 63) / 64 : 0, 0);
  if (absent_bytes > 0) std::memcpy(tile->absent.data(), plain.data() + step_bytes, absent_bytes);
  if (!old) {
    return scratch_->planes.Decode(rest, cells, tile->columns(), &tile->values)
               ? absl::OkStatus()
               : Damaged("its cells");
  }
  tile->values.resize(cells);
  UnshuffleBytes(plain.data() + step_bytes + absent_bytes, cells, tile->values.data());
  return absl::OkStatus();
}

}  // namespace plumbline::server
