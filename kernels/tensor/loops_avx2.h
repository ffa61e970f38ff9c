// The loops of tensor/loops.h with AVX2, FMA and F16C: for 16-bit and 32-bit words, a few for
// 64-bit ones. Call them only if the processor has these.
#pragma once

#include <cstdint>

#include "kernels/tensor/loops.h"

namespace plumbline {

#if defined(__x86_64__)

struct Avx2Loops : PortableLoops {
  static bool Supported();

  using PortableLoops::CountBelow;
  using PortableLoops::CountBelowIn;
  using PortableLoops::CountFrom;
  using PortableLoops::FlagSmall;
  using PortableLoops::GroupsBelow;
  using PortableLoops::SumGroups;

  static void Widen(const std::byte* data, DType t, int n, uint32_t* words);
  // The scans of 16-bit and 32-bit words: n is a multiple of 4 groups.
  static void Scan(const uint64_t* words, int n, ChunkScan<uint64_t>* scan);
  static void Scan(const uint16_t* words, int n, ChunkScan<uint16_t>* scan);
  static void Scan(const uint32_t* words, int n, ChunkScan<uint32_t>* scan);
  static void ScanMost(const uint64_t* words, int n, ChunkScan<uint64_t>* scan);
  static void ScanMost(const uint16_t* words, int n, ChunkScan<uint16_t>* scan);
  static void ScanMost(const uint32_t* words, int n, ChunkScan<uint32_t>* scan);
  static void ScanSigns(const uint64_t* words, int n, ChunkScan<uint64_t>* scan);
  static void ScanSigns(const uint16_t* words, int n, ChunkScan<uint16_t>* scan);
  static void ScanSigns(const uint32_t* words, int n, ChunkScan<uint32_t>* scan);
  static void CountBelow(const uint16_t* words, int n, uint16_t low, uint16_t high,
                         uint64_t* below_low, uint64_t* below_high);
  static void CountBelow(const uint32_t* words, int n, uint32_t low, uint32_t high,
                         uint64_t* below_low, uint64_t* below_high);
  static void CountBelowIn(const uint16_t* words, uint64_t groups, uint16_t low, uint16_t high,
                           uint64_t* below_low, uint64_t* below_high);
  static void CountBelowIn(const uint32_t* words, uint64_t groups, uint32_t low, uint32_t high,
                           uint64_t* below_low, uint64_t* below_high);
  static uint64_t CountFrom(const uint16_t* words, int n, uint16_t bound);
  static uint64_t CountFrom(const uint32_t* words, int n, uint32_t bound);
  static void CountFields(const uint16_t* words, int n, const uint16_t* least, int first, int last,
                          uint32_t* counts);
  static void CountFields(const uint32_t* words, int n, const uint32_t* least, int first, int last,
                          uint32_t* counts);
  static int SumGroups(const uint16_t* words, int n, const ChunkScan<uint16_t>& scan, bool* added,
                       ChunkSums* sums);
  static int SumGroups(const uint32_t* words, int n, const ChunkScan<uint32_t>& scan, bool* added,
                       ChunkSums* sums);
  static void AddRound(BF16Values, const std::byte* const* blocks, int threads, TileLanes* lanes);
  static void AddRound(F16Values, const std::byte* const* blocks, int threads, TileLanes* lanes);
  static void AddRound(F32Values, const std::byte* const* blocks, int threads, TileLanes* lanes);
  // Both read the whole array of kGroups.
  static uint64_t GroupsBelow(const uint16_t* least, int groups, uint16_t bound);
  static uint64_t GroupsBelow(const uint32_t* least, int groups, uint32_t bound);
  static bool FlagSmall(const uint16_t* most, const uint16_t* least, int n, uint16_t* flags);
  static bool FlagSmall(const uint32_t* most, const uint32_t* least, int n, uint32_t* flags);
  static Digest DigestWords(const std::byte* data, size_t words, DigestKey key);
};

#endif

}  // namespace plumbline
