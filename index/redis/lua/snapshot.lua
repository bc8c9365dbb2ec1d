return {generation, held[3]}
