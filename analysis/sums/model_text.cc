#include "analysis/sums/model_text.h"

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace plumbline::sums {
namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kMostBytes = size_t{64} << 20;

// Signed numbers are folded (0, -1, 1, -2, ...), because children are stored as distances to the
// node.
uint64_t Folded(int64_t x) {
  return (static_cast<uint64_t>(x) << 1) ^ static_cast<uint64_t>(x >> 63);
}
int64_t Unfolded(uint64_t x) { return static_cast<int64_t>(x >> 1) ^ -static_cast<int64_t>(x & 1); }

class ModelWriter {
 public:
  void Put(uint64_t x) {
    for (; x >= 0x80; x >>= 7) bytes_.push_back(static_cast<char>(x | 0x80));
    bytes_.push_back(static_cast<char>(x));
  }
  void PutSigned(int64_t x) { Put(Folded(x)); }
  void Put(const SumFormat& f) {
    PutSigned(f.precision);
    PutSigned(f.min_exponent);
    PutSigned(f.max_exponent);
  }
  void Put(const std::optional<Alignment>& a) {
    Put(a.has_value());
    if (!a) return;
    PutSigned(a->fraction_bits);
    Put(a->floor);
  }
  void Put(const InputCut& cut) {
    PutSigned(cut.bits);
    Put(static_cast<uint64_t>(cut.rounding));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// After the first error every value reads as 0.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  uint64_t Take() {
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const auto byte = static_cast<unsigned char>(*at_++);
      x |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return good_ ? x : 0;
    }
    good_ = false;
    return 0;
  }
  // Returns a value in [low, high]. If it is outside, marks an error.
  int64_t TakeSigned(int64_t low, int64_t high) {
    const int64_t x = Unfolded(Take());
    if (good_ && x >= low && x <= high) return x;
    good_ = false;
    return low;
  }
  uint64_t TakeBelow(uint64_t limit) {
    const uint64_t x = Take();
    if (good_ && x < limit) return x;
    good_ = false;
    return 0;
  }
  SumFormat TakeFormat() {
    SumFormat f;
    f.precision = static_cast<int>(TakeSigned(2, 53));
    f.min_exponent = static_cast<int>(TakeSigned(-1022, 0));
    f.max_exponent = static_cast<int>(TakeSigned(1, 1023));
    return f;
  }
  std::optional<Alignment> TakeAlignment() {
    if (TakeBelow(2) == 0) return std::nullopt;
    Alignment a;
    a.fraction_bits = static_cast<int>(TakeSigned(0, 1000));
    a.floor = TakeBelow(2) != 0;
    return a;
  }
  RoundingMode TakeRounding() { return static_cast<RoundingMode>(TakeBelow(5)); }
  InputCut TakeCut() {
    InputCut cut;
    cut.bits = static_cast<int>(TakeSigned(0, 53));
    cut.rounding = TakeRounding();
    return cut;
  }
  void Fail() { good_ = false; }
  bool good() const { return good_; }
  bool done() const { return at_ == end_; }

 private:
  const char* at_;
  const char* end_;
  bool good_ = true;
};

// Writes runs of equal values, each as a length and a value.
template <typename T, typename PutValue>
void PutRuns(const std::vector<T>& values, ModelWriter* out, PutValue put) {
  for (size_t i = 0; i < values.size();) {
    size_t end = i + 1;
    while (end < values.size() && values[end] == values[i]) ++end;
    out->Put(end - i);
    put(values[i]);
    i = end;
  }
}

template <typename T, typename TakeValue>
std::vector<T> TakeRuns(size_t count, Reader* in, TakeValue take) {
  std::vector<T> values;
  while (values.size() < count && in->good()) {
    const uint64_t run = in->TakeBelow(count - values.size() + 1);
    if (run == 0) in->Fail();
    const T value = take();
    if (in->good()) values.insert(values.end(), run, value);
  }
  return values;
}

void PutTree(const SummationTree& tree, ModelWriter* out) {
  out->Put(static_cast<uint64_t>(tree.leaves()));
  out->Put(static_cast<uint64_t>(tree.nodes()));
  // Differences to the children of the previous node, which repeat in lanes and folds.
  std::vector<int> before;
  for (int i = 0; i < tree.nodes(); ++i) {
    const std::vector<int>& children = tree.node(tree.leaves() + i).children;
    out->Put(children.size());
    for (size_t c = 0; c < children.size(); ++c)
      out->PutSigned(children[c] - (c < before.size() ? before[c] : 0));
    before = children;
  }
}

// Every leaf and every node except the root has one parent, which comes later.
SummationTree TakeTree(Reader* in) {
  const auto leaves = static_cast<int>(in->TakeBelow(kMostAddends + 1));
  const auto nodes = static_cast<int>(in->TakeBelow(static_cast<uint64_t>(std::max(leaves, 1))));
  if (leaves < 2 || nodes < 1) in->Fail();
  SummationTree tree(leaves);
  std::vector<bool> used(static_cast<size_t>(leaves + nodes), false);
  std::vector<int> before;
  for (int i = 0; i < nodes && in->good(); ++i) {
    const uint64_t count = in->TakeBelow(static_cast<uint64_t>(leaves) + 1);
    if (count < 2) in->Fail();
    std::vector<int> children;
    for (uint64_t c = 0; c < count && in->good(); ++c) {
      const int64_t base = c < before.size() ? before[c] : 0;
      const int64_t child = base + in->TakeSigned(-2 * kMostAddends, 2 * kMostAddends);
      if (child < 0 || child >= leaves + i || used[static_cast<size_t>(child)]) {
        in->Fail();
        break;
      }
      used[static_cast<size_t>(child)] = true;
      children.push_back(static_cast<int>(child));
    }
    if (in->good()) tree.Join(children);
    before = std::move(children);
  }
  const auto unused = std::count(used.begin(), used.end(), false);
  if (in->good() && unused != 1) in->Fail();  // only the root
  return tree;
}

std::string Compressed(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t n = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 19);
  out.resize(ZSTD_isError(n) ? 0 : n);
  return out;
}

absl::Status Bad(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("expected a sum's model, found ", what));
}

absl::StatusOr<std::string> Decompressed(const std::string& text) {
  std::string packed;
  if (!absl::Base64Unescape(text, &packed)) return Bad("no base 64");
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
    return Bad("not zstd data");
  if (size > kMostBytes) return Bad("more than 64 MiB");
  std::string bytes(size, '\0');
  const size_t n = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(n) || n != size) return Bad("damaged data");
  return bytes;
}

bool IsFormatted(uint64_t dtype) {
  return dtype <= static_cast<uint64_t>(DType::kBool) && IsFloating(static_cast<DType>(dtype));
}

DType TakeDType(Reader* in) {
  const uint64_t code = in->Take();
  if (!IsFormatted(code)) in->Fail();
  return in->good() ? static_cast<DType>(code) : DType::kF32;
}

}  // namespace

std::string ModelText(const SumModel& m) {
  ModelWriter out;
  out.Put(kVersion);
  out.Put(static_cast<uint64_t>(m.kind));
  out.Put(static_cast<uint64_t>(m.input));
  out.Put(static_cast<uint64_t>(m.output));
  PutTree(m.tree, &out);
  PutRuns(m.formats, &out, [&](const SumFormat& f) { out.Put(f); });
  out.Put(m.fused.size());
  PutRuns(m.fused, &out, [&](uint8_t fused) { out.Put(static_cast<uint64_t>(fused)); });
  out.Put(m.product);
  const Arithmetic& a = m.arithmetic;
  out.Put(static_cast<uint64_t>(a.rounding));
  out.Put(a.aligned);
  out.Put(a.block);
  out.Put(static_cast<uint64_t>(a.block_rounding));
  out.Put(static_cast<uint64_t>(a.store));
  out.Put(a.cut_a);
  out.Put(a.cut_b);
  out.Put(static_cast<uint64_t>(a.flush_inputs));
  out.Put(static_cast<uint64_t>(a.flush_results));
  return absl::Base64Escape(Compressed(out.bytes()));
}

absl::StatusOr<SumModel> ParseModel(const std::string& text) {
  const absl::StatusOr<std::string> bytes = Decompressed(text);
  if (!bytes.ok()) return bytes.status();
  Reader in(*bytes);
  if (in.Take() != kVersion) return Bad("another version");
  SumModel m;
  m.kind = static_cast<Kind>(in.TakeBelow(static_cast<uint64_t>(Kind::kAllReduce) + 1));
  m.input = TakeDType(&in);
  m.output = TakeDType(&in);
  m.tree = TakeTree(&in);
  if (!in.good()) return Bad("an incomplete tree");
  m.formats = TakeRuns<SumFormat>(static_cast<size_t>(m.tree.nodes()), &in,
                                  [&] { return in.TakeFormat(); });
  const uint64_t fused = in.Take();
  const auto leaves = static_cast<uint64_t>(m.tree.leaves());
  if (fused != leaves && (fused != 0 || HasProducts(m.kind))) in.Fail();
  m.fused = TakeRuns<uint8_t>(in.good() ? fused : 0, &in,
                              [&] { return static_cast<uint8_t>(in.TakeBelow(2)); });
  m.product = in.TakeFormat();
  Arithmetic& a = m.arithmetic;
  a.rounding = in.TakeRounding();
  a.aligned = in.TakeAlignment();
  a.block = in.TakeAlignment();
  a.block_rounding = in.TakeRounding();
  a.store = in.TakeRounding();
  a.cut_a = in.TakeCut();
  a.cut_b = in.TakeCut();
  a.flush_inputs = in.TakeBelow(2) != 0;
  a.flush_results = in.TakeBelow(2) != 0;
  if (!in.good() || !in.done()) return Bad("damaged data");
  return m;
}

}  // namespace plumbline::sums
