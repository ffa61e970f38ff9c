// Dumps of kind matmul in current formats: packed, scaled, in any spelling. Invalid dumps are
// refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/block_formats.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using testing::AuditBytes;
using testing::Bytes;
using testing::Dump;
using testing::ExpectProblems;
using testing::Problems;
using testing::SetTo;
using testing::VerdictOf;

constexpr int64_t kRows = 48, kInner = 64, kBlock = 16;
constexpr char kRule[] = "precision/gemm-accumulator";

// NVFP4: e2m1 codes, an e4m3 scale for each 16, one f32 scale for the tensor; summed exactly,
// scaled, stored.
struct Nvfp4 {
  std::vector<uint8_t> a, b;              // [m, K], one code each
  std::vector<uint8_t> a_scale, b_scale;  // [m, K/16]
  float a_tensor = 0.0371F, b_tensor = 0.61F;
  std::vector<float> d;
};

Nvfp4 Make(uint32_t seed) {
  std::mt19937 random(seed);
  Nvfp4 p;
  for (int64_t i = 0; i < kRows * kInner; ++i) {
    p.a.push_back(random() % 16);
    p.b.push_back(random() % 16);
  }
  for (int64_t i = 0; i < kRows * kInner / kBlock; ++i) {
    p.a_scale.push_back(static_cast<uint8_t>(0x28 + random() % 32));
    p.b_scale.push_back(static_cast<uint8_t>(0x28 + random() % 32));
  }
  for (int64_t i = 0; i < kRows; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < kInner; ++k) {
      const auto at = static_cast<size_t>(i * kInner + k);
      const auto block = static_cast<size_t>(i * kInner / kBlock + k / kBlock);
      const double x = E2M1Value(p.a[at]) * static_cast<double>(E4M3ToFloat(p.a_scale[block]));
      const double y = E2M1Value(p.b[at]) * static_cast<double>(E4M3ToFloat(p.b_scale[block]));
      sum += static_cast<float>(x * y);
    }
    p.d.push_back(sum * (p.a_tensor * p.b_tensor));
  }
  return p;
}

// Two values per byte, the first in the low nibble.
std::vector<uint8_t> Packed(const std::vector<uint8_t>& codes) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < codes.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(codes[i] | codes[i + 1] << 4));
  return bytes;
}

Dump Nvfp4Dump() {
  const Nvfp4 p = Make(1);
  Dump dump;
  dump.metadata = {{"kind", "matmul"}, {"layer", "layers.0"},    {"input_format", "e2m1"},
                   {"block", "16"},    {"scale_format", "e4m3"}, {"declared_accumulator", "f32"}};
  dump.tensors = {{"a", "U8", {kRows, kInner / 2}, Bytes(Packed(p.a))},
                  {"b", "U8", {kRows, kInner / 2}, Bytes(Packed(p.b))},
                  {"d", "F32", {kRows}, Bytes(p.d)},
                  {"a_scale", "U8", {kRows, kInner / kBlock}, Bytes(p.a_scale)},
                  {"b_scale", "U8", {kRows, kInner / kBlock}, Bytes(p.b_scale)},
                  {"a_tensor_scale", "F32", {1}, Bytes(std::vector<float>{p.a_tensor})},
                  {"b_tensor_scale", "F32", {1}, Bytes(std::vector<float>{p.b_tensor})}};
  return dump;
}

std::string Stated(const Dump& dump) {
  const AuditResult result = AuditBytes(dump.File());
  EXPECT_EQ(Problems(result), "");
  const v1::Verdict* verdict = VerdictOf(result, kRule);
  if (verdict == nullptr) return "nothing";
  return verdict->has_finding() ? verdict->finding().explanation() : verdict->reason();
}

TEST(MatmulDump, Nvfp4IsUnpackedAndReplayed) {
  EXPECT_THAT(Stated(Nvfp4Dump()), ::testing::HasSubstr("48 of 48 elements: "));
  // Swapped nibbles make another product.
  Dump swapped = Nvfp4Dump();
  for (const char* name : {"a", "b"}) {
    for (char& byte : swapped.Tensor(name).data) {
      const auto two = static_cast<uint8_t>(byte);
      if (std::string(name) == "a") byte = static_cast<char>(two << 4 | two >> 4);
    }
  }
  const AuditResult other = AuditBytes(swapped.File());
  const v1::Verdict* verdict = VerdictOf(other, kRule);
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(verdict->details().fields().at("beyond_bound").number_value(), 48);
}

TEST(MatmulDump, DtypesOfTheFormatGiveTheSame) {
  const Nvfp4 p = Make(1);
  Dump dump = Nvfp4Dump();
  dump.metadata.erase("input_format");
  for (const char* name : {"a", "b"}) {
    dump.Tensor(name).dtype = "F4";
    dump.Tensor(name).shape = {kRows, kInner};
  }
  for (const char* name : {"a_scale", "b_scale"}) dump.Tensor(name).dtype = "F8_E4M3";
  EXPECT_THAT(Stated(dump), ::testing::HasSubstr("48 of 48 elements: "));
}

TEST(MatmulDump, Mxfp4ScalesArePowersOfTwo) {
  Nvfp4 p = Make(3);
  p.d.clear();
  std::vector<uint8_t> scales(static_cast<size_t>(kRows * kInner / kBlock));
  std::mt19937 random(9);
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(120 + random() % 12);
  for (size_t i = 0; i < static_cast<size_t>(kRows); ++i) {
    double sum = 0;
    for (size_t k = 0; k < static_cast<size_t>(kInner); ++k) {
      const size_t at = i * kInner + k, block = i * kInner / kBlock + k / kBlock;
      sum += E2M1Value(p.a[at]) * E2M1Value(p.b[at]) * E8M0Value(scales[block]) *
             E8M0Value(scales[block]);
    }
    p.d.push_back(static_cast<float>(sum));
  }
  Dump dump = Nvfp4Dump();
  dump.metadata["scale_format"] = "e8m0";
  dump.metadata["input_format"] = "mxfp4";
  dump.Tensor("a").data = Bytes(Packed(p.a));
  dump.Tensor("b").data = Bytes(Packed(p.b));
  dump.Tensor("a_scale").data = dump.Tensor("b_scale").data = Bytes(scales);
  dump.Tensor("d").data = Bytes(p.d);
  dump.Remove("a_tensor_scale");
  dump.Remove("b_tensor_scale");
  EXPECT_THAT(Stated(dump), ::testing::HasSubstr("48 of 48 elements: "));
  for (const char* name : {"a_scale", "b_scale"}) dump.Tensor(name).dtype = "F8_E8M0";
  dump.metadata.erase("scale_format");
  EXPECT_THAT(Stated(dump), ::testing::HasSubstr("48 of 48 elements: "));
}

TEST(MatmulDump, EveryFormatsNameIsTaken) {
  for (const char* name :
       {"tf32", "f32", "fp32", "fp16", "f16", "bf16", "bfloat16", "e4m3", "F8_E4M3",
        "float8_e4m3fn", "torch.float8_e4m3fn", "e5m2", "F8_E5M2", "TF32"}) {
    Dump dump;
    dump.metadata = {{"kind", "matmul"}, {"input_format", name}};
    const std::vector<float> ones(8 * 4, 1.0F);
    dump.tensors = {{"a", "F32", {8, 4}, Bytes(ones)},
                    {"b", "F32", {8, 4}, Bytes(ones)},
                    {"d", "F32", {8}, Bytes(std::vector<float>(8, 4.0F))}};
    EXPECT_EQ(Problems(AuditBytes(dump.File())), "") << name;
  }
}

TEST(MatmulDump, BytesOfAnEightBitFormatAreRead) {
  std::vector<uint8_t> a(48 * 32), b(48 * 32);
  std::mt19937 random(4);
  std::vector<float> d;
  for (uint8_t& x : a) x = static_cast<uint8_t>(random() % 0x70 + 0x80 * (random() % 2));
  for (uint8_t& x : b) x = static_cast<uint8_t>(random() % 0x70);
  for (size_t i = 0; i < 48; ++i) {
    float sum = 0;
    for (size_t k = 0; k < 32; ++k) sum += E4M3ToFloat(a[32 * i + k]) * E4M3ToFloat(b[32 * i + k]);
    d.push_back(sum);
  }
  Dump dump;
  dump.metadata = {{"kind", "matmul"}, {"input_format", "e4m3"}};
  dump.tensors = {{"a", "U8", {48, 32}, Bytes(a)},
                  {"b", "U8", {48, 32}, Bytes(b)},
                  {"d", "F32", {48}, Bytes(d)}};
  EXPECT_THAT(Stated(dump), ::testing::HasSubstr("48 of 48 elements: "));
}

TEST(MatmulDump, WhatDoesNotFitIsRefusedByName) {
  ExpectProblems(
      Nvfp4Dump,
      {{"no such format", SetTo("input_format", "e1m9"), "expected metadata input_format to be"},
       {"u8 without a format", [](Dump& d) { d.metadata.erase("input_format"); },
        "expected a as a floating dtype (for U8 set input_format"},
       {"scales of u8 without a format", [](Dump& d) { d.metadata.erase("scale_format"); },
        "expected a_scale as F32 (for U8 set scale_format"},
       {"no block", [](Dump& d) { d.metadata.erase("block"); }, "expected metadata block with"},
       {"another block", SetTo("block", "32"), "expected a_scale of shape [m,ceil(K/block)]"},
       {"one side", [](Dump& d) { d.Remove("b_scale"); },
        "expected both or neither of a_scale and b_scale"},
       {"rounding", SetTo("output_rounding", "up"), "expected metadata output_rounding to be"},
       {"zero", SetTo("scale", "0"), "expected metadata scale to be a factor that is not 0"},
       {"tensor scale",
        [](Dump& d) {
          d.Tensor("a_tensor_scale").shape = {2};
          d.Tensor("a_tensor_scale").data.resize(8);
        },
        "expected a_tensor_scale of shape [1]"}});
}

}  // namespace
}  // namespace plumbline::audit
