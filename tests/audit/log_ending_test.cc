// How a trainer's log ends: what its last lines say, and what they do not.
#include "audit/readers/trainer_log/log_ending.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "audit/readers/trainer_log/scaler_sentences.h"

namespace plumbline::audit {
namespace {

constexpr char kRow[] = "{'loss': 1.4, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.5}\n";
constexpr char kTraceback[] =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 57, in <module>\n"
    "    trainer.train()\n";

TEST(LogEnding, AnExceptionIsItsTypeAndItsLine) {
  const auto ending = EndingOf(std::string(kRow) + kTraceback + "ValueError: bad labels\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->kind, LogEnding::Kind::kException);
  EXPECT_EQ(ending->type, "ValueError");
  EXPECT_EQ(ending->message, "ValueError: bad labels");
  EXPECT_FALSE(ending->rank);
}

TEST(LogEnding, TheFirstExceptionCounts) {
  const auto ending = EndingOf(
      std::string(kRow) + "[rank3]: " + "Traceback (most recent call last):\n" +
      "[rank3]:   File \"a.py\", line 1\n[rank3]: KeyError: 'x'\n" + kTraceback +
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->type, "KeyError");
  EXPECT_EQ(ending->rank, 3u);
}

TEST(LogEnding, MemoryThatRanOut) {
  const auto ending = EndingOf(std::string(kRow) + kTraceback +
                               "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
                               "GiB. GPU 0 has a total capacity of 79.15 GiB\n");
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->kind, LogEnding::Kind::kOutOfMemory);
}

TEST(LogEnding, AKill) {
  for (const char* line :
       {"Killed\n", "run.sh: line 3:  4711 Killed                  python train.py\n",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0\n"}) {
    const auto ending = EndingOf(std::string(kRow) + line);
    ASSERT_TRUE(ending) << line;
    EXPECT_EQ(ending->kind, LogEnding::Kind::kKilled) << line;
  }
}

std::string Watchdog(int rank, int sequence, int enqueued) {
  const std::string head = "[rank" + std::to_string(rank) +
                           "]:[E ProcessGroupNCCL.cpp:607] [Rank " + std::to_string(rank) + "] ";
  return head + "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
         std::to_string(sequence) + ", OpType=ALLREDUCE, NumelIn=4, Timeout(ms)=600000) ran for " +
         "600029 milliseconds before timing out.\n" + head +
         "Exception detected by watchdog at work: " + std::to_string(sequence) +
         ", last enqueued NCCL work: " + std::to_string(enqueued) +
         ", last completed NCCL work: " + std::to_string(sequence - 1) + ".\n";
}

TEST(LogEnding, ATimeoutNamesTheRankThatDidNotCome) {
  const auto ending = EndingOf(std::string(kRow) + Watchdog(0, 120, 124) + Watchdog(1, 120, 124) +
                               Watchdog(2, 118, 118) + Watchdog(3, 120, 124));
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->kind, LogEnding::Kind::kTimeout);
  EXPECT_EQ(ending->sequence, 120u);
  EXPECT_EQ(ending->op, "ALLREDUCE");
  EXPECT_EQ(ending->waiting, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(ending->missing, (std::vector<uint32_t>{2}));
}

TEST(LogEnding, ARankThatPrintedNoTimeoutWasElsewhere) {
  const auto ending = EndingOf("[rank0]: start\n[rank1]: start\n" + Watchdog(0, 7, 9));
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->missing, (std::vector<uint32_t>{1}));
}

TEST(LogEnding, WhatEndsWellIsNone) {
  EXPECT_FALSE(EndingOf(""));
  EXPECT_FALSE(EndingOf(kRow));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "{'train_runtime': 12.1, 'train_loss': 1.2}\n"));
  // An exception that was caught: training goes on.
  EXPECT_FALSE(EndingOf(std::string(kTraceback) + "OSError: retry\n" + kRow));
  EXPECT_FALSE(EndingOf(std::string(kRow) + "This run Killed the competition in 3 steps\n"));
  EXPECT_FALSE(EndingOf(std::string(kRow) + kTraceback));  // cut off: no exception is named
  EXPECT_FALSE(EndingOf(std::string(kRow) + "saved; see ValueError: handled above\n"));
}

TEST(ScalerSentences, EveryFormCounts) {
  ScalerSentences said;
  said.Take(
      "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to "
      "32768.0",
      0);
  said.Take("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0", 100);
  said.Take("NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 8192.0",
            200);
  said.Take("overflow detected, setting loss scale to 4096", 300);
  said.Take("loss 1.4, no overflow here", 400);
  said.Take("OVERFLOW! reducing to nan", 500);
  EXPECT_EQ(said.events(), 4u);
  EXPECT_EQ(said.first(), 65536);
  EXPECT_EQ(said.last(), 4096);
  EXPECT_FALSE(said.storm(1000)) << "four halvings are a start";
}

TEST(ScalerSentences, AStormFallsToTheEnd) {
  ScalerSentences said;
  double scale = 65536;
  for (int i = 0; i < 14; ++i) {
    scale /= 2;
    said.Take("Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to " +
                  std::to_string(scale),
              static_cast<uint64_t>(100 * i));
  }
  EXPECT_TRUE(said.storm(1400));
  EXPECT_FALSE(said.storm(100'000)) << "training went on for long";
}

TEST(LogEnding, PoisonedLinesAreNoCrash) {
  EXPECT_FALSE(EndingOf("[rank]: x\n[rank99999999999999999999]: SeqNum=\n\n[rank"));
  const std::string longest(100'000, 'x');
  const auto ending = EndingOf(kTraceback + ("ValueError: " + longest));
  ASSERT_TRUE(ending);
  EXPECT_LE(ending->message.size(), 303u);
}

}  // namespace
}  // namespace plumbline::audit
