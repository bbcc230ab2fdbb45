// The BROI controller's logic behind its storage: the entries' units and barrier index registers
// (BROI paper, section IV.E) come in, the Sch-SET comes out.
//
// An entry is a queue of units, oldest first: the bank of a write, and whether it was sent. A
// barrier index register has the first unit behind its barrier, UNITS where there is no barrier.
// What is before the first barrier is the SubReady-SET, what is before the second the Next-SET;
// broi_schedule.sv chooses from these.
module broi_controller #(
    parameter int ENTRIES = 8,
    parameter int BANKS = 8,
    parameter int UNITS = 8,
    parameter int SIGMA_SHIFT = 2,  // sigma = 0.25
    parameter int STAGES = 0,       // of broi_schedule
    localparam int BANK_BITS = $clog2(BANKS),
    localparam int INDEX_BITS = $clog2(UNITS + 1)
) (
    input  logic                               clock,
    input  logic [ENTRIES*UNITS-1:0]           valid,
    input  logic [ENTRIES*UNITS-1:0]           sent,
    input  logic [ENTRIES*UNITS*BANK_BITS-1:0] bank,
    input  logic [ENTRIES*2*INDEX_BITS-1:0]    barrier,
    input  logic [BANKS-1:0]                   waiting,  // a write waits at the bank
    input  logic [ENTRIES*2-1:0]               turn,     // as in broi_schedule
    output logic [ENTRIES*BANKS-1:0]           schedule  // Sch-SET: bank by bank
);
  localparam int SIZE_BITS = INDEX_BITS;

  logic [ENTRIES*BANKS-1:0] ready;
  logic [ENTRIES*BANKS-1:0] next;
  logic [ENTRIES*BANKS-1:0] unsent;
  logic [ENTRIES*SIZE_BITS-1:0] size;
  always_comb begin : find_sets
    logic [BANKS-1:0] hot;
    logic [INDEX_BITS-1:0] first;
    logic [INDEX_BITS-1:0] second;
    ready = '0;
    next = '0;
    unsent = '0;
    size = '0;
    for (int e = 0; e < ENTRIES; e++) begin
      first = barrier[(2*e)*INDEX_BITS+:INDEX_BITS];
      second = barrier[(2*e+1)*INDEX_BITS+:INDEX_BITS];
      for (int u = 0; u < UNITS; u++) begin
        hot = BANKS'(1) << bank[(e*UNITS+u)*BANK_BITS+:BANK_BITS];
        if (!valid[e*UNITS+u]) hot = '0;
        if (INDEX_BITS'(u) < first) begin
          ready[e*BANKS+:BANKS] |= hot;
          if (!sent[e*UNITS+u]) unsent[e*BANKS+:BANKS] |= hot;
          size[e*SIZE_BITS+:SIZE_BITS] += SIZE_BITS'(valid[e*UNITS+u]);
        end else if (INDEX_BITS'(u) < second) begin
          next[e*BANKS+:BANKS] |= hot;
        end
      end
    end
  end

  broi_schedule #(.ENTRIES(ENTRIES), .BANKS(BANKS), .SIZE_BITS(SIZE_BITS),
                  .SIGMA_SHIFT(SIGMA_SHIFT), .STAGES(STAGES)) decision (
      .clock, .ready, .next, .unsent, .size, .waiting, .turn, .schedule);
endmodule
