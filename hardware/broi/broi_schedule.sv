// The BROI controller's decision (BROI paper, section IV.D, steps i to iii): of each bank the
// entry whose write goes next. Storage, addresses and barriers are around it: each entry shows the
// banks of its SubReady-SET and Next-SET, and how many writes the former has.
//
//   step i    priority of an entry, equation 2: banks busy if it went on to its Next-SET, that is
//             its Next-SET's and all others' SubReady-SETs', less sigma times its own size.
//             sigma = 2^-SIGMA_SHIFT; scores are (banks << SIGMA_SHIFT) - size, so never fractions
//   step ii   every pair of entries is compared once, for all banks; a tie is the lower entry's
//   step iii  of each bank that has no write waiting, the candidate that no other one beats
//
// Remote entries that have waited too long go first, then local ones, then other remote ones if the
// memory controller's queue is short: only entries of the first kind that has a candidate are
// chosen from. The counters of their waiting are outside.
//
// STAGES: registers behind step i, behind step ii and behind step iii, a bit each, from bit 0.
module broi_schedule #(
    parameter int ENTRIES = 8,
    parameter int BANKS = 8,
    parameter int SIZE_BITS = 4,    // sizes to 8, the entries of a persist buffer
    parameter int SIGMA_SHIFT = 2,  // sigma = 0.25
    parameter int STAGES = 0
) (
    // verilator lint_off UNUSED
    input  logic                         clock,  // of the registers, if any
    // verilator lint_on UNUSED
    input  logic [ENTRIES*BANKS-1:0]     ready,    // SubReady-SET's banks, entry by entry
    input  logic [ENTRIES*BANKS-1:0]     next,     // Next-SET's banks
    input  logic [ENTRIES*BANKS-1:0]     unsent,   // banks of its writes that were not sent
    input  logic [ENTRIES*SIZE_BITS-1:0] size,     // writes in the SubReady-SET
    input  logic [BANKS-1:0]             waiting,  // a write waits at the bank
    input  logic [ENTRIES*2-1:0]         turn,     // 0 local; remote: 1 held back, 2 may go, 3 starved
    output logic [ENTRIES*BANKS-1:0]     schedule  // Sch-SET: bank by bank, one entry at most
);
  localparam int COUNT_BITS = $clog2(BANKS + 1);
  // Signed: from -(2^SIZE_BITS - 1) to BANKS << SIGMA_SHIFT.
  localparam int SCORE_BITS = 2 + ((COUNT_BITS + SIGMA_SHIFT > SIZE_BITS) ?
                                   COUNT_BITS + SIGMA_SHIFT : SIZE_BITS);

  // Candidates: of each entry the banks to which it could send now.
  logic [ENTRIES*BANKS-1:0] candidates;
  always_comb begin : find_candidates
    logic any_starved;
    logic any_local;
    logic goes;
    any_starved = 1'b0;
    any_local = 1'b0;
    for (int e = 0; e < ENTRIES; e++) begin
      if (turn[2*e+:2] == 2'd3) any_starved |= |(unsent[e*BANKS+:BANKS] & ~waiting);
      if (turn[2*e+:2] == 2'd0) any_local |= |(unsent[e*BANKS+:BANKS] & ~waiting);
    end
    for (int e = 0; e < ENTRIES; e++) begin
      case (turn[2*e+:2])
        2'd0: goes = !any_starved;
        2'd1: goes = 1'b0;
        2'd2: goes = !any_starved && !any_local;
        default: goes = 1'b1;
      endcase
      candidates[e*BANKS+:BANKS] = unsent[e*BANKS+:BANKS] & ~waiting & {BANKS{goes}};
    end
  end

  // Step i.
  logic [ENTRIES*SCORE_BITS-1:0] scores;
  always_comb begin : find_scores
    logic [BANKS-1:0] busy;
    logic [COUNT_BITS-1:0] count;
    for (int e = 0; e < ENTRIES; e++) begin
      busy = next[e*BANKS+:BANKS];
      for (int other = 0; other < ENTRIES; other++)
        if (other != e) busy |= ready[other*BANKS+:BANKS];
      count = '0;
      for (int b = 0; b < BANKS; b++) count += COUNT_BITS'(busy[b]);
      scores[e*SCORE_BITS+:SCORE_BITS] =
          (SCORE_BITS'(count) << SIGMA_SHIFT) - SCORE_BITS'(size[e*SIZE_BITS+:SIZE_BITS]);
    end
  end

  logic [ENTRIES*SCORE_BITS-1:0] scores_i;
  logic [ENTRIES*BANKS-1:0] candidates_i;
  broi_stage #(.WIDTH(ENTRIES * (SCORE_BITS + BANKS)), .PRESENT(STAGES[0])) stage_i (
      .clock, .in({scores, candidates}), .out({scores_i, candidates_i}));

  // Step ii: beats[a * ENTRIES + b]: entry a goes before entry b.
  logic [ENTRIES*ENTRIES-1:0] beats;
  always_comb begin : compare
    beats = '0;
    for (int a = 0; a < ENTRIES; a++)
      for (int b = a + 1; b < ENTRIES; b++) begin
        beats[a*ENTRIES+b] = $signed(scores_i[a*SCORE_BITS+:SCORE_BITS]) >=
                             $signed(scores_i[b*SCORE_BITS+:SCORE_BITS]);
        beats[b*ENTRIES+a] = !beats[a*ENTRIES+b];
      end
  end

  logic [ENTRIES*ENTRIES-1:0] beats_ii;
  logic [ENTRIES*BANKS-1:0] candidates_ii;
  broi_stage #(.WIDTH(ENTRIES * (ENTRIES + BANKS)), .PRESENT(STAGES[1])) stage_ii (
      .clock, .in({beats, candidates_i}), .out({beats_ii, candidates_ii}));

  // Step iii.
  logic [ENTRIES*BANKS-1:0] chosen;
  always_comb begin : choose
    for (int b = 0; b < BANKS; b++)
      for (int e = 0; e < ENTRIES; e++) begin
        chosen[b*ENTRIES+e] = candidates_ii[e*BANKS+b];
        for (int other = 0; other < ENTRIES; other++)
          if (other != e)
            chosen[b*ENTRIES+e] &= !candidates_ii[other*BANKS+b] || beats_ii[e*ENTRIES+other];
      end
  end

  broi_stage #(.WIDTH(ENTRIES * BANKS), .PRESENT(STAGES[2])) stage_iii (
      .clock, .in(chosen), .out(schedule));
endmodule
