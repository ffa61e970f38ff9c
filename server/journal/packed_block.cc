#include "server/journal/packed_block.h"

#include <zstd.h>

#include <cstring>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/journal/entry.h"
#include "server/packing/value_columns.h"
#include "server/packing/value_runs.h"

namespace plumbline::server {
namespace {

constexpr uint32_t kForm = 1;
constexpr int kTextLevel = 3;
constexpr uint8_t kCut = 0x80;  // added to an entry's type
// Bytes per entry in the text, in addition to the payload: type and length.
constexpr size_t kMostDirectory = 1 + 10;

struct Header {
  uint32_t form = kForm;
  uint32_t entries = 0;
  uint32_t whole = 0;
  uint32_t text = 0;
  uint32_t packed_text = 0;
};
static_assert(sizeof(Header) == 20 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

bool TakeVarint(std::string_view* bytes, uint64_t* out) {
  *out = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    *out |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

uint64_t StreamOf(std::string_view payload) {
  EntryPrefix prefix;
  EntryPrefix::Decode(payload, &prefix);
  return prefix.stream_id;
}

bool MayHoldValues(FrameType type, std::string_view payload) {
  return type == FrameType::kJournalBatch && payload.size() > EntryPrefix::kSize;
}

}  // namespace

// ---- reading ---------------------------------------------------------------------------------

struct BlockReader::Scratch {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  PlaneCodec codec;
  ValueColumns columns;
  std::vector<ValueRun> runs;
  std::string text, whole;
  struct Entry {
    FrameType type;
    bool cut;
    size_t size;  // in the text; once complete, of its payload
  };
  std::vector<Entry> entries;
  size_t next = 0, next_at = 0;

  ~Scratch() { ZSTD_freeDCtx(zstd); }

  bool TakeText(const Header& h, std::string_view block) {
    if (h.packed_text > block.size()) return false;
    text.resize(h.text);
    const size_t n =
        ZSTD_decompressDCtx(zstd, text.data(), text.size(), block.data(), h.packed_text);
    return !ZSTD_isError(n) && n == h.text;
  }

  bool TakeDirectory(size_t count, std::string_view* bytes) {
    for (size_t i = 0; i < count; ++i) {
      if (bytes->empty()) return false;
      const auto kind = static_cast<uint8_t>(bytes->front());
      bytes->remove_prefix(1);
      uint64_t size = 0;
      if (!TakeVarint(bytes, &size) || size > kMostBlock) return false;
      const auto type = static_cast<FrameType>(kind & ~kCut);
      const bool cut = (kind & kCut) != 0;
      if (!IsEntry(type) || size < EntryPrefix::kSize) return false;
      if (cut && type != FrameType::kJournalBatch) return false;
      entries.push_back({type, cut, size});
    }
    return true;
  }

  // Appends the entry's bytes to `whole`, with space for its values.
  bool Place(std::string_view bytes, Entry* entry) {
    const size_t start = whole.size();
    if (!entry->cut) {
      whole.append(bytes);
      return true;
    }
    size_t size = 0;
    const size_t batch_at = start + EntryPrefix::kSize;
    if (!FindValueRuns(bytes.substr(EntryPrefix::kSize), true, &runs, &size)) return false;
    if (size > kMostBlock - whole.size()) return false;
    entry->size = EntryPrefix::kSize + size;
    const uint64_t stream = StreamOf(bytes);
    for (const ValueRun& run : runs) {
      const size_t before = batch_at + run.at - whole.size();
      whole.append(bytes.substr(0, before));
      bytes.remove_prefix(before);
      whole.append(run.count * sizeof(double), '\0');
      columns.Add(run, stream, batch_at);
    }
    whole.append(bytes);
    return true;
  }
};

BlockReader::BlockReader() = default;
BlockReader::~BlockReader() = default;

bool BlockReader::Open(std::string_view block, std::string* why) {
  if (scratch_ == nullptr) scratch_ = std::make_unique<Scratch>();
  Scratch& s = *scratch_;
  if (s.zstd == nullptr) throw std::bad_alloc();
  s.entries.clear();
  s.next = s.next_at = 0;
  const auto wrong = [&](const char* expected) {
    s.entries.clear();
    *why = absl::StrCat("expected a packed block with ", expected, ", found other bytes");
    return false;
  };
  Header h;
  if (block.size() < sizeof(h)) return wrong("a header");
  std::memcpy(&h, block.data(), sizeof(h));
  block.remove_prefix(sizeof(h));
  if (h.form != kForm) {
    *why = absl::StrCat("expected a packed block of form ", kForm, ", found form ", h.form);
    return false;
  }
  // An entry has at least its prefix, so this bounds the directory.
  const bool sane = h.whole <= kMostBlock && h.entries <= h.whole / EntryPrefix::kSize &&
                    h.text <= h.whole + h.entries * kMostDirectory;
  if (!sane) return wrong("at most 12 MiB of entries");
  if (!s.TakeText(h, block)) return wrong("its text in one zstd frame");
  std::string_view text = s.text;
  if (!s.TakeDirectory(h.entries, &text)) return wrong("types and lengths of its entries");
  s.whole.clear();
  s.whole.reserve(h.whole);
  s.columns.Clear();
  for (Scratch::Entry& entry : s.entries) {
    const size_t size = entry.size;
    if (size > text.size() || size > kMostBlock - s.whole.size() ||
        !s.Place(text.substr(0, size), &entry)) {
      return wrong("entries with the stated lengths");
    }
    text.remove_prefix(size);
  }
  if (!text.empty() || s.whole.size() != h.whole) return wrong("entries with the stated lengths");
  if (!s.columns.Decode(s.codec, block.substr(h.packed_text), &s.whole)) {
    return wrong("the columns of its entries");
  }
  return true;
}

bool BlockReader::Next(FrameType* type, std::string_view* payload) {
  if (scratch_ == nullptr) return false;
  Scratch& s = *scratch_;
  if (s.next >= s.entries.size()) return false;
  const Scratch::Entry& entry = s.entries[s.next++];
  *type = entry.type;
  *payload = std::string_view(s.whole).substr(s.next_at, entry.size);
  s.next_at += entry.size;
  return true;
}

// ---- writing ---------------------------------------------------------------------------------

struct BlockPacker::Scratch {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  PlaneCodec codec;
  ValueColumns columns;
  BlockReader reader;
  std::vector<ValueRun> runs;
  std::string whole, directory, text;
  uint32_t entries = 0;

  ~Scratch() { ZSTD_freeCCtx(zstd); }

  void Begin() {
    whole.clear();
    directory.clear();
    text.clear();
    columns.Clear();
    entries = 0;
  }

  // Appends the payload without its values to the text. Returns false if it has none.
  bool Cut(std::string_view payload) {
    size_t size = 0;
    if (!FindValueRuns(payload.substr(EntryPrefix::kSize), false, &runs, &size) || runs.empty()) {
      return false;
    }
    const size_t batch_at = whole.size() + EntryPrefix::kSize;
    const uint64_t stream = StreamOf(payload);
    size_t from = 0;
    for (const ValueRun& run : runs) {
      const size_t at = EntryPrefix::kSize + run.at;
      text.append(payload.substr(from, at - from));
      from = at + run.count * sizeof(double);
      columns.Add(run, stream, batch_at);
    }
    text.append(payload.substr(from));
    return true;
  }

  bool ComesBack(std::string_view block) {
    std::string why;
    if (!reader.Open(block, &why)) return false;
    std::string_view left = directory, rest = whole;
    FrameType type;
    std::string_view payload;
    while (reader.Next(&type, &payload)) {
      uint64_t in_text = 0;
      const auto kind = static_cast<uint8_t>(left.front());
      left.remove_prefix(1);
      if (!TakeVarint(&left, &in_text)) return false;
      if (static_cast<uint8_t>(type) != (kind & ~kCut) || rest.substr(0, payload.size()) != payload)
        return false;
      rest.remove_prefix(payload.size());
    }
    return left.empty() && rest.empty();
  }

  // May throw bad_alloc.
  void Write(std::string* out) {
    Header h;
    h.entries = entries;
    h.whole = static_cast<uint32_t>(whole.size());
    const std::string all = directory + text;
    h.text = static_cast<uint32_t>(all.size());
    out->assign(sizeof(h) + ZSTD_compressBound(all.size()), '\0');
    const size_t n = ZSTD_compressCCtx(zstd, out->data() + sizeof(h), out->size() - sizeof(h),
                                       all.data(), all.size(), kTextLevel);
    if (ZSTD_isError(n)) throw std::bad_alloc();  // the bound excludes all other errors
    h.packed_text = static_cast<uint32_t>(n);
    std::memcpy(out->data(), &h, sizeof(h));
    out->resize(sizeof(h) + n);
    columns.Encode(codec, whole, out);
  }
};

BlockPacker::BlockPacker() : scratch_(std::make_unique<Scratch>()) {
  if (scratch_->zstd == nullptr) throw std::bad_alloc();
}
BlockPacker::~BlockPacker() = default;

size_t BlockPacker::bytes() const { return scratch_->whole.size(); }

void BlockPacker::Add(FrameType type, std::string_view payload) {
  Scratch& s = *scratch_;
  const size_t before = s.text.size();
  const bool cut = MayHoldValues(type, payload) && s.Cut(payload);
  if (!cut) s.text.append(payload);
  s.directory.push_back(static_cast<char>(static_cast<uint8_t>(type) | (cut ? kCut : 0)));
  AppendVarint(s.text.size() - before, &s.directory);
  s.whole.append(payload);
  ++s.entries;
}

bool BlockPacker::Finish(std::string* out) {
  Scratch& s = *scratch_;
  s.Write(out);
  const bool same = s.ComesBack(*out);
  s.Begin();
  return same;
}

}  // namespace plumbline::server
