#include "tests/rules/attack/lab.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plumbline::rules::attack {
namespace {

uint64_t Mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t Hash(uint64_t seed, uint64_t what, uint64_t a, uint64_t b) {
  return Mix(Mix(Mix(Mix(seed) ^ what) ^ a) ^ b);
}

double Unit(uint64_t hash) { return (static_cast<double>(hash >> 11) + 0.5) * 0x1p-53; }

uint64_t RowKey(const Rows& rows, int t) {
  const auto row = static_cast<size_t>(t);
  return static_cast<uint64_t>(rows.sequence[row]) << 32 |
         static_cast<uint64_t>(rows.position[row]);
}

template <typename T>
T OneOf(uint64_t hash, std::initializer_list<T> values) {
  return *(values.begin() + hash % values.size());
}

// Tags of the draws for the text. Routers use small numbers.
enum : uint64_t { kSizes = 1u << 20, kSymbols, kEmbedding, kNoise, kPopularity, kOrder, kRedraw };

}  // namespace

Lab::Lab(Data data, uint64_t seed) : data_(data), seed_(seed) {
  const auto draw = [&](uint64_t n) { return Hash(seed, kSizes, n, 0); };
  if (data == Data::kMixed) {
    data_ = OneOf(draw(0), {Data::kPlain, Data::kPlain, Data::kPopular, Data::kSudoku,
                            Data::kPermutations, Data::kPeriodic, Data::kZipf, Data::kTied,
                            Data::kTiny, Data::kPacked, Data::kRepeated});
  }
  experts_ = OneOf(draw(1), {4, 8, 8, 16});
  k_ = std::min(experts_ / 2, OneOf(draw(2), {1, 2, 2, 4}));
  sequences_ = OneOf(draw(3), {2, 4, 8});
  length_ = OneOf(draw(4), {24, 48, 96});
  factor_ = OneOf(draw(5), {0.5, 0.75, 1.0, 1.25});
  noise_ = OneOf(draw(6), {0.0, 0.02, 0.3});
  popularity_ = 0.5;
  switch (data_) {
    case Data::kPlain:
    case Data::kPacked:
    case Data::kRepeated:
      noise_ = 1;
      break;
    case Data::kPopular:
      noise_ = 1;
      popularity_ = 1.5;
      break;
    case Data::kSudoku:
      length_ = 81;
      popularity_ = 0;
      break;
    case Data::kEven:
      length_ = 4 * experts_;
      break;
    case Data::kPermutations:
      length_ = 36;
      popularity_ = 0;
      break;
    case Data::kTied:
      noise_ = 1;
      quantum_ = OneOf(draw(7), {0.25, 0.5, 1.0});
      break;
    case Data::kTiny:
      sequences_ = 2;
      length_ = 6;
      noise_ = 1;
      break;
    case Data::kOne:
      experts_ = k_ = 1;
      noise_ = 1;
      break;
    case Data::kList:
      sequences_ = 1;
      length_ = OneOf(draw(4), {64, 128, 256});
      noise_ = 0;
      break;
    case Data::kLarge:
      experts_ = OneOf(draw(1), {8, 16, 32});
      sequences_ = OneOf(draw(3), {4, 8, 16});
      length_ = 128;
      noise_ = 1;
      popularity_ = 1;
      break;
    default:
      break;
  }
}

double Lab::Uniform(uint64_t what, uint64_t a, uint64_t b) const {
  return Unit(Hash(seed_, what, a, b));
}
double Lab::Normal(uint64_t what, uint64_t a, uint64_t b) const {
  const uint64_t hash = Hash(seed_, what, a, b);
  return std::sqrt(-2 * std::log(Unit(hash))) * std::cos(6.283185307179586 * Unit(Mix(hash)));
}
double Lab::Uniform(uint64_t what, const Rows& rows, int t, int e) const {
  return Uniform(what, RowKey(rows, t), static_cast<uint64_t>(e));
}
double Lab::Normal(uint64_t what, const Rows& rows, int t, int e) const {
  return Normal(what, RowKey(rows, t), static_cast<uint64_t>(e));
}

std::vector<double> Lab::LogitsOf(int symbol, int64_t sequence, int64_t position) const {
  std::vector<double> x(static_cast<size_t>(experts_));
  const auto place = static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(position);
  for (size_t e = 0; e < x.size(); ++e) {
    x[e] = popularity_ * Normal(kPopularity, e) +
           (noise_ < 1 ? 1.0 : 0.3) * Normal(kEmbedding, static_cast<uint64_t>(symbol), e) +
           noise_ * Normal(kNoise, place, e);
    if (quantum_ > 0) x[e] = std::round(x[e] / quantum_) * quantum_;
  }
  return x;
}

void Lab::Fill(Rows& rows, uint64_t salt) const {
  rows.experts = experts_;
  const auto word = [&](int64_t sequence, int64_t position) {
    return Hash(seed_ ^ salt, kSymbols, static_cast<uint64_t>(sequence),
                static_cast<uint64_t>(position));
  };
  const int repeat = data_ == Data::kRepeated ? 2 : 1;
  for (int b = 0; b < sequences_; ++b) {
    int length = length_;
    if (data_ == Data::kPacked)
      length = 1 + static_cast<int>(word(b, -1) % static_cast<uint64_t>(length_));
    std::vector<int> symbols(static_cast<size_t>(length));
    for (int s = 0; s < length; ++s) {
      const uint64_t w = word(b / repeat, s);
      int& symbol = symbols[static_cast<size_t>(s)];
      symbol = static_cast<int>(w % 500);
      if (data_ == Data::kSudoku) symbol = s % 9;
      if (data_ == Data::kPermutations || data_ == Data::kList) symbol = s;
      if (data_ == Data::kEven) symbol = s % (2 * experts_);
      if (data_ == Data::kPeriodic) symbol = s % 6 + 6 * (b % 2);
      if (data_ == Data::kZipf) symbol = static_cast<int>(std::floor(1 / (Unit(w) + 0.01)));
    }
    if (data_ == Data::kSudoku || data_ == Data::kPermutations || data_ == Data::kEven ||
        data_ == Data::kList) {
      for (size_t i = symbols.size(); i > 1; --i)
        std::swap(symbols[i - 1], symbols[word(b, static_cast<int64_t>(1000 + i)) % i]);
    }
    for (int s = 0; s < length; ++s) {
      rows.sequence.push_back(b);
      rows.position.push_back(s);
      rows.symbol.push_back(symbols[static_cast<size_t>(s)]);
    }
  }
  rows.count = static_cast<int>(rows.symbol.size());
  // Half of the batches are flattened by position.
  if (Hash(seed_, kOrder, 0, 0) % 2 == 0) {
    std::vector<size_t> order(rows.symbol.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return rows.position[a] < rows.position[b]; });
    Rows by_position = rows;
    for (size_t i = 0; i < order.size(); ++i) {
      by_position.sequence[i] = rows.sequence[order[i]];
      by_position.position[i] = rows.position[order[i]];
      by_position.symbol[i] = rows.symbol[order[i]];
    }
    rows = std::move(by_position);
  }
  rows.padding.assign(rows.symbol.size(), 0);
}

void Lab::Score(Rows& rows) const {
  rows.x.clear();
  for (size_t t = 0; t < rows.symbol.size(); ++t) {
    const bool twin = data_ == Data::kRepeated;
    const std::vector<double> x =
        LogitsOf(rows.symbol[t], twin ? rows.sequence[t] / 2 : rows.sequence[t], rows.position[t]);
    rows.x.insert(rows.x.end(), x.begin(), x.end());
  }
}

Rows Lab::Text() const {
  Rows rows;
  Fill(rows, 0);
  Score(rows);
  return rows;
}

Rows Lab::Earlier() const {
  Rows rows;
  Fill(rows, 0x5eed);
  for (int64_t& sequence : rows.sequence) sequence += 1000;
  Score(rows);
  return rows;
}

Rows Lab::Changed(const Rows& rows, int64_t sequence, int64_t cut, int method) const {
  Rows out = rows;
  const auto experts = static_cast<size_t>(rows.experts);
  const uint64_t other =
      Hash(seed_, kRedraw, static_cast<uint64_t>(cut), static_cast<uint64_t>(method));
  for (size_t t = 0; t < rows.symbol.size(); ++t) {
    if (rows.sequence[t] != sequence || rows.position[t] < cut) continue;
    // A scaled copy of a row before the cut, noise, or a flood of one expert.
    size_t model = t;
    for (uint64_t n = 0; n < 50; ++n) {
      model = static_cast<size_t>(Hash(other, t, n, 1) % rows.symbol.size());
      if (rows.sequence[model] == sequence && rows.position[model] < cut) break;
    }
    out.symbol[t] = method == 0 ? rows.symbol[model] : static_cast<int>(Hash(other, t, 0, 2) % 500);
    for (size_t e = 0; e < experts; ++e) {
      double x = 1.5 * rows.x[model * experts + e];
      if (method == 1) x = 2 * Normal(kRedraw, other ^ t, e);
      if (method == 2) x = Normal(kRedraw, other ^ t, e) + (e == other % experts ? 5 : 0);
      out.x[t * experts + e] = x;
    }
  }
  return out;
}

int64_t Refused(const Rows& rows, const Call& call) {
  int64_t refused = 0;
  for (size_t i = 0; i < call.keep.size(); ++i) {
    refused +=
        !call.keep[i] && !rows.padding[i / static_cast<size_t>(call.k)] && call.index[i] >= 0;
  }
  return refused;
}

namespace {

struct Extent {
  int64_t sequences = 0, longest = 0;
  explicit Extent(const Rows& rows) {
    for (size_t t = 0; t < rows.sequence.size(); ++t) {
      sequences = std::max(sequences, rows.sequence[t] + 1);
      longest = std::max(longest, rows.position[t] + 1);
    }
  }
};

bool SameExperts(const Rows& rows, const Call& a, const Call& b, size_t t) {
  const auto experts = static_cast<std::ptrdiff_t>(rows.experts);
  const auto from = static_cast<std::ptrdiff_t>(t) * experts;
  return std::equal(a.map.begin() + from, a.map.begin() + from + experts, b.map.begin() + from);
}

}  // namespace

bool DependsOnBatch(const Lab& lab, Router route, const Rows& rows, const Call& base, int tries) {
  const Extent extent(rows);
  for (int n = 0; n < tries; ++n) {
    const int64_t sequence = n % extent.sequences;
    const Call now = route(lab, lab.Changed(rows, sequence, 0, n % 3));
    for (size_t t = 0; t < rows.sequence.size(); ++t) {
      if (rows.sequence[t] != sequence && !SameExperts(rows, base, now, t)) return true;
    }
  }
  return false;
}

bool Leaks(const Lab& lab, Router route, const Rows& rows, const Call& base, int tries) {
  const Extent extent(rows);
  for (int n = 0; n < tries; ++n) {
    const auto number = static_cast<uint64_t>(n);
    const auto sequence = static_cast<int64_t>(Hash(lab.seed(), kRedraw, number, 3) %
                                               static_cast<uint64_t>(extent.sequences));
    const auto cut =
        1 + static_cast<int64_t>(Hash(lab.seed(), kRedraw, number, 4) %
                                 static_cast<uint64_t>(std::max<int64_t>(extent.longest - 1, 1)));
    const Call now = route(lab, lab.Changed(rows, sequence, cut, n % 3));
    for (size_t t = 0; t < rows.sequence.size(); ++t) {
      if (rows.sequence[t] != sequence || rows.position[t] >= cut) continue;
      if (!SameExperts(rows, base, now, t)) return true;
    }
  }
  return false;
}

}  // namespace plumbline::rules::attack
