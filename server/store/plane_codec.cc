#include "server/store/plane_codec.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>

#include "server/store/byte_shuffle.h"

namespace plumbline::server {
namespace {

using WordList = std::vector<uint64_t>;

enum Form : uint8_t { kDoubles = 1, kFloats = 2, kDecimals = 3 };
enum Plane : uint8_t { kFull = 0, kRaw = 1, kPacked = 2, kTogether = 3 };

struct PlaneHeader {
  uint8_t form;
  uint8_t differences;
  uint8_t places;
  uint8_t zero;
  uint64_t least;
};
constexpr size_t kHeaderBytes = 12;

constexpr int kPlaneLevel = 1;
constexpr size_t kTogetherCells = 1024;  // below this, separate frames cost more than they save
constexpr double kPowers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
// Below this, one multiplication gives the digits of a decimal with an error of less than a half.
constexpr double kMostDigits = 0x1p50;

size_t BytesOf(uint8_t form) { return form == kFloats ? 4 : 8; }

uint64_t ZigZag(int64_t v) {
  return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63);
}
int64_t ZagZig(uint64_t v) { return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1)); }

// Digits are stored as ordered words, with this offset above 0.
constexpr int64_t kNoDigits = int64_t{1} << 51;

double FromDecimal(uint64_t word, uint8_t places) {
  return static_cast<double>(static_cast<int64_t>(word - uint64_t{kNoDigits})) / kPowers[places];
}

// Computes the digits of `value` with `places` decimals. Returns false if they do not restore its
// bits (as for -0 and NaN).
bool Digits(double value, uint8_t places, uint64_t* word) {
  const double scaled = value * kPowers[places];
  if (!(std::fabs(scaled) < kMostDigits)) return false;
  *word = static_cast<uint64_t>(std::llrint(scaled) + kNoDigits);
  return std::bit_cast<uint64_t>(FromDecimal(*word, places)) == std::bit_cast<uint64_t>(value);
}

// Returns true if all cells are decimals with few places. A decimal with few places has a form with
// more, too.
bool AsDecimals(const std::vector<double>& cells, WordList* words, uint8_t* places) {
  *places = 0;
  uint64_t word = 0;
  for (const double cell : cells) {
    while (!Digits(cell, *places, &word)) {
      if (++*places == std::size(kPowers)) return false;
    }
  }
  words->resize(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!Digits(cells[i], *places, &(*words)[i])) return false;
  }
  return true;
}

bool AsFloats(const std::vector<double>& cells, WordList* words) {
  words->resize(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto narrow = static_cast<float>(cells[i]);
    if (std::bit_cast<uint64_t>(static_cast<double>(narrow)) != std::bit_cast<uint64_t>(cells[i]))
      return false;
    (*words)[i] = std::bit_cast<uint32_t>(narrow);
  }
  return true;
}

// Returns the word of the previous step; in the first step, that of the previous column.
uint64_t Before(const WordList& words, size_t i, size_t columns) {
  return i >= columns ? words[i - columns] : i > 0 ? words[i - 1] : 0;
}

// Returns the difference within the width of a word, so that four bytes stay four.
uint64_t Difference(uint64_t a, uint64_t b, uint8_t form) {
  if (form != kFloats) return ZigZag(static_cast<int64_t>(a - b));
  const auto d = static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
  return (static_cast<uint32_t>(d) << 1) ^ static_cast<uint32_t>(d >> 31);
}

uint64_t Sum(uint64_t before, uint64_t difference, uint8_t form) {
  const uint64_t sum = before + static_cast<uint64_t>(ZagZig(difference));
  return form == kFloats ? sum & 0xFFFFFFFFu : sum;
}

// One way to write the cells, and its approximate size in bits.
struct Way {
  PlaneHeader header{};
  uint64_t bits = UINT64_MAX;
};

Way WayOf(const WordList& words, size_t columns, uint8_t form, uint8_t places) {
  Way way;
  way.header.form = form;
  way.header.places = places;
  way.header.least = *std::min_element(words.begin(), words.end());
  uint64_t above = 0, moved = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    above += static_cast<uint64_t>(std::bit_width(words[i] - way.header.least));
    moved += static_cast<uint64_t>(
        std::bit_width(Difference(words[i], Before(words, i, columns), form)));
  }
  way.bits = std::min(above, moved);
  if (moved < above) {
    way.header.differences = 1;
    way.header.least = 0;
  }
  return way;
}

template <typename T>
void Append(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

struct PlaneCodec::Scratch {
  ZSTD_CCtx* pack = ZSTD_createCCtx();
  ZSTD_DCtx* unpack = ZSTD_createDCtx();
  WordList words, decimals;
  std::vector<uint8_t> planes;
  std::string packed;

  ~Scratch() {
    ZSTD_freeCCtx(pack);
    ZSTD_freeDCtx(unpack);
  }

  std::string_view Pack(const uint8_t* bytes, size_t size) {
    packed.resize(ZSTD_compressBound(size));
    const size_t n =
        ZSTD_compressCCtx(pack, packed.data(), packed.size(), bytes, size, kPlaneLevel);
    if (ZSTD_isError(n)) throw std::bad_alloc();  // the bound excludes all other errors
    return std::string_view(packed).substr(0, n);
  }

  bool Unpack(std::string_view* bytes, uint8_t* to, size_t size) {
    uint32_t length = 0;
    if (bytes->size() < sizeof(length)) return false;
    std::memcpy(&length, bytes->data(), sizeof(length));
    bytes->remove_prefix(sizeof(length));
    if (bytes->size() < length) return false;
    const size_t n = ZSTD_decompressDCtx(unpack, to, size, bytes->data(), length);
    bytes->remove_prefix(length);
    return !ZSTD_isError(n) && n == size;
  }

  void AppendPlane(const uint8_t* plane, size_t size, std::string* out) {
    if (std::all_of(plane, plane + size, [&](uint8_t b) { return b == *plane; })) {
      Append(uint8_t{kFull}, out);
      Append(*plane, out);
      return;
    }
    const std::string_view frame = Pack(plane, size);
    if (frame.size() + sizeof(uint32_t) >= size) {
      Append(uint8_t{kRaw}, out);
      out->append(reinterpret_cast<const char*>(plane), size);
      return;
    }
    Append(uint8_t{kPacked}, out);
    Append(static_cast<uint32_t>(frame.size()), out);
    out->append(frame);
  }

  bool ReadPlanes(std::string_view bytes, size_t size, size_t width) {
    planes.resize(size * width);
    for (size_t plane = 0; plane < width; ++plane) {
      uint8_t* const to = planes.data() + plane * size;
      if (bytes.empty()) return false;
      const auto kind = static_cast<uint8_t>(bytes[0]);
      bytes.remove_prefix(1);
      if (kind == kTogether) {
        return plane == 0 && Unpack(&bytes, planes.data(), planes.size()) && bytes.empty();
      } else if (kind == kPacked) {
        if (!Unpack(&bytes, to, size)) return false;
      } else {
        const size_t held = kind == kFull ? 1 : size;
        if (kind > kRaw || bytes.size() < held) return false;
        kind == kFull ? void(std::memset(to, bytes[0], size))
                      : void(std::memcpy(to, bytes.data(), size));
        bytes.remove_prefix(held);
      }
    }
    return bytes.empty();
  }
};

PlaneCodec::PlaneCodec() : scratch_(std::make_unique<Scratch>()) {
  if (scratch_->pack == nullptr || scratch_->unpack == nullptr) throw std::bad_alloc();
}
PlaneCodec::~PlaneCodec() = default;

void PlaneCodec::Encode(const std::vector<double>& cells, size_t columns, std::string* out) {
  Scratch& s = *scratch_;
  Way way;
  if (AsFloats(cells, &s.words)) {
    way = WayOf(s.words, columns, kFloats, 0);
  } else {
    s.words.resize(cells.size());
    std::memcpy(s.words.data(), cells.data(), 8 * cells.size());
    way = WayOf(s.words, columns, kDoubles, 0);
  }
  uint8_t places = 0;
  if (AsDecimals(cells, &s.decimals, &places)) {
    const Way decimal = WayOf(s.decimals, columns, kDecimals, places);
    if (decimal.bits < way.bits) {
      way = decimal;
      s.words.swap(s.decimals);
    }
  }
  const PlaneHeader& h = way.header;
  for (const uint8_t byte : {h.form, h.differences, h.places, h.zero}) Append(byte, out);
  Append(h.least, out);

  const size_t width = BytesOf(h.form), count = cells.size();
  s.planes.resize(width * count);
  for (size_t i = count; i-- > 0;) {  // in place, because each word uses only earlier ones
    s.words[i] = h.differences != 0 ? Difference(s.words[i], Before(s.words, i, columns), h.form)
                                    : s.words[i] - h.least;
  }
  if (width == 8) {
    ShuffleBytes(s.words.data(), count, s.planes.data());
  } else {
    for (size_t plane = 0; plane < width; ++plane) {
      for (size_t i = 0; i < count; ++i)
        s.planes[plane * count + i] = static_cast<uint8_t>(s.words[i] >> (8 * plane));
    }
  }
  if (count < kTogetherCells) {
    const std::string_view frame = s.Pack(s.planes.data(), s.planes.size());
    Append(uint8_t{kTogether}, out);
    Append(static_cast<uint32_t>(frame.size()), out);
    out->append(frame);
    return;
  }
  for (size_t plane = 0; plane < width; ++plane)
    s.AppendPlane(s.planes.data() + plane * count, count, out);
}

bool PlaneCodec::Decode(std::string_view bytes, size_t count, size_t columns,
                        std::vector<double>* cells) {
  Scratch& s = *scratch_;
  PlaneHeader h{};
  if (bytes.size() < kHeaderBytes) return false;
  h.form = static_cast<uint8_t>(bytes[0]);
  h.differences = static_cast<uint8_t>(bytes[1]);
  h.places = static_cast<uint8_t>(bytes[2]);
  std::memcpy(&h.least, bytes.data() + 4, sizeof(h.least));
  if (h.form < kDoubles || h.form > kDecimals || h.differences > 1 ||
      h.places >= std::size(kPowers)) {
    return false;
  }
  const size_t width = BytesOf(h.form);
  if (!s.ReadPlanes(bytes.substr(kHeaderBytes), count, width)) return false;
  s.words.assign(count, 0);
  cells->resize(count);
  if (width == 8) {
    UnshuffleBytes(s.planes.data(), count, s.words.data());
  } else {
    for (size_t plane = 0; plane < width; ++plane) {
      for (size_t i = 0; i < count; ++i)
        s.words[i] |= static_cast<uint64_t>(s.planes[plane * count + i]) << (8 * plane);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = s.words[i];
    word = h.differences != 0 ? Sum(Before(s.words, i, columns), word, h.form) : word + h.least;
    s.words[i] = word;
    (*cells)[i] = h.form == kDoubles  ? std::bit_cast<double>(word)
                  : h.form == kFloats ? std::bit_cast<float>(static_cast<uint32_t>(word))
                                      : FromDecimal(word, h.places);
  }
  return true;
}

}  // namespace plumbline::server
